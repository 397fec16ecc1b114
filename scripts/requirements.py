"""Tells which requirement ids no test carries yet."""

import ast
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from scripts.house_rules import parse_file

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
KNOWN = TESTS / "support" / "requirement_ids.txt"
FROM_DOCUMENTS = TESTS / "support" / "document_ids.txt"
WAIVED = TESTS / "support" / "waived_ids.txt"
"""Ids of which a part is decided otherwise, each with the part and the decision; such an id counts for the rest."""
OUR_OWN = TESTS / "support" / "product_ids.txt"


def known_ids() -> list[str]:
    return KNOWN.read_text().split() + list(document_ids()) + list(document_ids(OUR_OWN))


def document_ids(path: Path = FROM_DOCUMENTS) -> dict[str, str]:
    """The ids of what is asked beyond the numbered requirements, each with the sentence that says what."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return {name: meaning for name, _, meaning in (line.partition(" ") for line in lines)}


@cache
def carried_ids(tests: Path = TESTS, parse: Callable[[Path], ast.Module] = parse_file) -> Mapping[str, list[str]]:
    """Every id a test carries, with the places that carry it."""
    carried: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(tests.rglob("*.py")):
        for call in _req_marks(parse(path)) if "mark.req" in path.read_text() else ():
            place = f"{path.relative_to(tests.parent)}:{call.lineno}"
            for argument in call.args:
                # A computed id cannot be seen from here, so it counts as the unknown id it would hide.
                literal = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                carried[ast.literal_eval(argument) if literal else ast.unparse(argument)].append(place)
    return dict(carried)


def _req_marks(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="req")) if ast.unparse(node.func) in {"pytest.mark.req", "mark.req"}:
                yield node
            case _:
                pass


def report(known: list[str], carried: set[str], waived: dict[str, str] | None = None) -> str:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in known:
        groups[name.partition("-")[0]].append(name)
    parts = []
    for group, ids in groups.items():
        missing = [name for name in ids if name not in carried]
        if missing:
            parts.append(textwrap.fill(" ".join(missing), 120, initial_indent=f"{group}: ", subsequent_indent="    "))
    parts += [f"{name} in part: {why}" for name, why in (waived or {}).items()]
    parts += [f"{group} {sum(name in carried for name in ids)}/{len(ids)}" for group, ids in groups.items()]
    return "\n".join(parts)


if __name__ == "__main__":
    print(report(known_ids(), set(carried_ids()), document_ids(WAIVED)))
    sys.exit(0)
