"""Every fault of the crash ledger has a runbook page that says what is seen, what happens by itself, and what to do."""

import re
from pathlib import Path

import pytest

from tests.fleet.faults import FAULTS
from tests.support.sources import ROOT

FOLDER = ROOT / "docs" / "runbook" / "faults"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "README.md")


def named(text: str) -> set[str]:
    """The faults that the first paragraph of a page names."""
    found = re.search(r"^Faults: (.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    sentence = " ".join(found[1].split()).partition(". ")[0].rstrip(".")
    return set(sentence.split(", "))


@pytest.mark.req("P-588")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_its_three_parts(page: Path) -> None:
    headings = [line for line in page.read_text().splitlines() if line.startswith("## ")]
    assert headings == ["## What is seen", "## What happens by itself", "## What to do"]
    assert f"({page.name})" in (FOLDER / "README.md").read_text()


@pytest.mark.req("P-588")
def test_every_fault_has_exactly_one_page() -> None:
    told = [fault for page in PAGES for fault in named(page.read_text())]
    assert sorted(told) == sorted(fault.name for fault in FAULTS)
