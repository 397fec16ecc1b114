"""Every fault of the crash ledger has a runbook page that says what is seen, what happens by itself, and what to do."""

import re
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from carillon.domain import events
from tests.deploy.prometheus import exported
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


RUNBOOK = sorted((ROOT / "docs" / "runbook").glob("**/*.md"))
NAME = re.compile(r"`([a-z][a-z0-9]*(?:[_.][a-z0-9_]+)+)`")
TROUBLE = re.compile(r"`trouble` with ((?:`\w+`(?:, | or )?)+)")
METRIC = re.compile(r"`(carillon_\w+)`")
OTHERS = {"pg_stat_replication", "pause_minority", "replication.factor", "min.insync.replicas"}
"""Names of PostgreSQL, RabbitMQ and Kafka."""


@cache
def spoken() -> tuple[set[str], set[str]]:
    """The words of the code, those of its log events among them, and what it writes in quotes."""
    kinds = {".py", ".toml", ".sql", ".lua"}
    text = "\n".join(file.read_text() for file in (ROOT / "src").rglob("*") if file.suffix in kinds)
    logged = {str(kind.__struct_config__.tag) for kind in get_args(events.Event)}
    return set(re.findall(r"\w+", text)) | logged, set(re.findall(r'"(\w+)"', text))


def unknown(text: str) -> list[str]:
    """What a page names and Carillon does not have: settings, log events, places of trouble, metrics."""
    words, quoted = spoken()
    metrics = {name for made in exported().values() for name in made}
    found = [name for name in METRIC.findall(text) if not any(metric.startswith(name) for metric in metrics)]
    for name in set(NAME.findall(text)) - OTHERS - set(METRIC.findall(text)):
        found += [name] if any(word not in words for word in name.split(".")) else []
    for places in TROUBLE.findall(text):
        found += [place for place in re.findall(r"`(\w+)`", places) if place not in quoted]
    return found


@pytest.mark.req("P-873")
def test_what_runbook_pages_name_exists() -> None:
    assert {page.name: names for page in RUNBOOK if (names := unknown(page.read_text()))} == {}


@pytest.mark.req("P-873")
@pytest.mark.parametrize(
    "said",
    ["`lease_gone` in the log", "`work.concurency`", "`trouble` with `settle` or `setle`", "`carillon_lost_total`"],
)
def test_a_name_that_does_not_exist_is_noticed(said: str) -> None:
    assert len(unknown(f"What is seen: {said}.")) == 1
