"""The README, the tutorial and the guides that need nothing beside Carillon, typed as printed."""

from pathlib import Path

import pytest

from tests.support import docs_pages
from tests.support.docs_shell import follow
from tests.support.sources import ROOT

PAGES = (
    "README.md",
    "docs/tutorial/first-notification.md",
    "docs/how-to/run-several-processes.md",
    "docs/how-to/dead-letters.md",
    "docs/how-to/observe.md",
    "docs/how-to/upgrade.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    follow(ROOT / page, tmp_path)


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo one two three\none … four\n```\n")
    with pytest.raises(AssertionError, match="one two three"):
        follow(page, tmp_path)


def test_a_failing_command_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ carillon serve-it-all\n```\n")
    with pytest.raises(AssertionError, match="ended with 2"):
        follow(page, tmp_path)


def test_a_command_goes_on_over_lines() -> None:
    block = docs_pages.Block("console", "$ echo a \\\n  b\na b\n$ echo 'c\nd'\nc\nd\n", 1)
    found = [(step.command, step.output) for step in docs_pages.steps(block)]
    assert found == [("echo a \\\n  b", "a b\n"), ("echo 'c\nd'", "c\nd\n")]
