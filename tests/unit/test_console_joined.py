"""The console's files in two: every module and style sheet is in them, or what cannot be joined is named."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from carillon.upkeep.console import joined

FOLDER = Path(str(files("carillon.upkeep.console").joinpath("static")))


def found(ending: str) -> dict[str, bytes]:
    return {str(file.relative_to(FOLDER)): file.read_bytes() for file in sorted(FOLDER.rglob(f"*{ending}"))}


@pytest.mark.req("P-641")
def test_every_module_is_joined_with_all_that_it_exports() -> None:
    modules = found(".js")
    text = joined.script(modules).decode()
    for path, module in modules.items():
        assert text.count(f'$modules.set("{path}"') == 1
        for name in re.findall(r"^export (?:async )?(?:function|class|const) (\w+)", module.decode(), re.MULTILINE):
            assert re.search(rf"^return {{ .*\b{name}\b.* }};$", text, re.MULTILINE), (path, name)
    assert text.endswith('$take("app.js");\n')
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)


@pytest.mark.req("P-641")
def test_every_style_sheet_is_in_the_one_that_is_served() -> None:
    sheets = found(".css")
    text = joined.style(sheets).decode()
    assert "@import" not in text
    for path, sheet in sheets.items():
        assert path == joined.SHEETS or sheet.decode().strip() in text, f"{path} is in nobody's console.css"
    assert text.index("--back:") < text.index("body {"), "the tokens stand before those who use them"


def test_names_are_bound_as_the_module_says() -> None:
    modules = {
        "app.js": b'import {\n  one as first, two\n} from "./lib/a.js";\nimport * as all from "./lib/a.js";\n',
        "lib/a.js": b'import { b } from "./b.js";\nexport const one = b;\nexport async function two() {}\n',
        "lib/b.js": b"export class b {}\n",
        "pages/p.js": b'import { b } from "../lib/b.js";\n',
    }
    text = joined.script(modules).decode()
    assert 'const {\n  one: first, two\n} = $take("lib/a.js");' in text
    assert 'const all = $take("lib/a.js");' in text
    assert text.count('const { b } = $take("lib/b.js");') == 2
    assert "return { one, two };" in text


@pytest.mark.parametrize(
    "line",
    [
        "export { one };",
        "export default 1;",
        "export let one = 1;",
        'import "./b.js";',
    ],
)
def test_what_cannot_be_joined_is_named(line: str) -> None:
    with pytest.raises(joined.NotJoined, match=r"app\.js has '"):
        joined.script({"app.js": f"const a = 1;\n{line}\n".encode(), "b.js": b""})


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(joined.NotJoined, match=r"lib/a\.js imports lib/gone\.js, which is not there"):
        joined.script({"lib/a.js": b'import { one } from "./gone.js";\n'})
