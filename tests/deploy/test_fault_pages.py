"""Every fault of the crash ledger has a runbook page that says what is seen, what happens by itself, and what to do."""

import re
from pathlib import Path

import pytest

from tests.deploy.test_observe import RULES
from tests.fleet.faults import FAULTS
from tests.support.sources import ROOT

FOLDER = ROOT / "docs" / "runbook" / "faults"
ALARM = re.compile(r"\[`(\w+)`\]\(\.\./([\w-]+\.md)\)")
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


@pytest.mark.req("P-633")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_the_alarms_that_fire_each_with_its_own_page(page: Path) -> None:
    said = page.read_text().partition("## What is seen\n\n")[2].partition("\n\n")[0]
    assert said.startswith("Alarms: ")
    own = {rule["alert"]: Path(rule["annotations"]["runbook_url"]).name for rule in RULES}
    found = ALARM.findall(said)
    assert found
    assert {name: own.get(name) for name, _ in found} == dict(found)
    # An alarm that the rest of the page speaks of is in the list.
    spoken = {name for name in own if re.search(rf"\b{name}\b", page.read_text())}
    assert spoken == {name for name, _ in found}
