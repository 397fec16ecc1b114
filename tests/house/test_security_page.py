"""What SECURITY.md and the page about security promise: every test and command that they name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("SECURITY.md", "docs/explanation/security.md")
_TEST = re.compile(r"`(tests/[\w/]+\.py)`")
_COMMAND = re.compile(r"`make ([a-z]+)")


def promises(page: str) -> list[tuple[str, str]]:
    """Each promise, and where it is tested."""
    section = page.partition("## What is promised")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [(row[0], row[1]) for row in rows[2:]]


def missing(page: str) -> list[str]:
    """The tests that are not there, and the commands that the Makefile does not have."""
    makefile = (ROOT / "Makefile").read_text()
    tests = [path for path in _TEST.findall(page) if not (ROOT / path).exists()]
    return tests + [f"make {name}" for name in _COMMAND.findall(page) if f"\n{name}:" not in makefile]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    assert _TEST.search(text)
    assert missing(text) == []


def test_every_promise_has_a_test() -> None:
    found = promises((ROOT / PAGES[0]).read_text())
    assert len(found) >= 8
    assert [promise for promise, where in found if not _TEST.search(where)] == []


def test_control_a_promise_without_a_test_is_seen() -> None:
    page = "## What is promised\n\n| promise | where |\n| --- | --- |\n| Good. | by looking |\n\n## Next\n"
    assert [promise for promise, where in promises(page) if not _TEST.search(where)] == ["Good."]
    assert missing("`tests/unit/test_nobody.py` and `make gold`") == ["tests/unit/test_nobody.py", "make gold"]
