"""The dashboard and the alarms ask for what Carillon exports, and every alarm has its page."""

import json
import re
from typing import Any

import pytest
import yaml

from carillon.domain.breaker import State
from tests.deploy.prometheus import Series, asked, exported, grouped, mistakes, words
from tests.support import docs_pages
from tests.support.sources import ROOT, code_files

FOLDER = ROOT / "deploy" / "observe"
RUNBOOK = ROOT / "docs" / "runbook"
BOARD: Any = json.loads((FOLDER / "dashboard.json").read_text())
RULES: list[Any] = [
    rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
# Words that selectors may ask for; each is one that the code says.
SAID = {
    ("outcome", "accepted"),
    ("outcome", "sent"),
    ("outcome", "delayed"),
    ("outcome", "throttled"),
    ("provider", "sse"),
    ("after", State.OPEN.value),
    ("place", "main"),
    ("place", "failed"),
    ("result", "failed"),
}


@pytest.fixture(scope="module")
def series() -> Series:
    return {name: labels for found in exported().values() for name, labels in found.items()}


@pytest.mark.parametrize("panel", [pytest.param(panel, id=panel["title"]) for panel in PANELS])
def test_a_panel_asks_for_what_there_is(panel: Any, series: Series) -> None:
    assert panel["description"].endswith(".")
    for target in panel["targets"]:
        expression = target["expr"]
        assert asked(expression), "about Carillon"
        assert not mistakes(expression, series), expression
        assert words(expression) <= SAID
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped(expression)
        assert target["datasource"]["uid"] == "${datasource}", "whichever Prometheus the reader has"


def test_every_metric_is_drawn_somewhere() -> None:
    drawn = {name for panel in PANELS for target in panel["targets"] for name in asked(target["expr"])}
    missing = [metric for metric, made in exported().items() if not drawn & set(made)]
    assert missing == []


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in RULES])
def test_an_alarm_asks_for_what_there_is(rule: Any, series: Series) -> None:
    expression = rule["expr"]
    assert asked(expression)
    assert not mistakes(expression, series), expression
    assert words(expression) <= SAID
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= grouped(expression)
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in RULES])
def test_an_alarm_has_its_page(rule: Any) -> None:
    page = ROOT / rule["annotations"]["runbook_url"]
    assert page.parent == RUNBOOK
    assert f"`{rule['alert']}`" in page.read_text()
    headings = [line for line in page.read_text().splitlines() if line.startswith("## ")]
    assert headings == ["## What it means", "## Look", "## Fix", "## Afterwards"]


def test_a_page_has_its_alarm() -> None:
    named = {(ROOT / rule["annotations"]["runbook_url"]).name for rule in RULES}
    assert named == {page.name for page in RUNBOOK.glob("*.md")} - {"README.md"}
    listed = {docs_pages.word(cells[0]): cells[-1] for cells in docs_pages.rows(RUNBOOK / "README.md")}
    for rule in RULES:
        assert f"({(ROOT / rule['annotations']['runbook_url']).name})" in listed.pop(rule["alert"])
    assert not listed


def test_the_loops_that_may_be_in_trouble_are_loops() -> None:
    sources = "".join(path.read_text() for path in code_files(".py", folders=("src",)))
    told = {name for cells in docs_pages.rows(RUNBOOK / "troubles.md") for name in re.findall(r"`(\w+)`", cells[0])}
    assert told
    assert {name for name in told if f'"{name}"' not in sources} == set()
    # A defect alone brings the last ones: the page's last row is about them.
    assert set(re.findall(r'Trouble\(where="(\w+)"', sources)) - told == {"attempt", "worker"}


@pytest.mark.parametrize(
    ("expression", "strange"),
    [
        ("rate(carillon_attempt_total[5m])", "carillon_attempt_total"),
        ("max(carillon_routes_oldest_due_age)", "carillon_routes_oldest_due_age"),
        ("sum by (queue) (rate(carillon_attempts_total[5m]))", "queue"),
        ('carillon_queue_depth{where="main"}', "where"),
    ],
)
def test_a_mistake_is_noticed(expression: str, strange: str, series: Series) -> None:
    assert mistakes(expression, series) == [strange]


@pytest.mark.req("X0-11")
def test_the_push_workers_page_its_alarms_and_the_dashboard_name_one_gauge() -> None:
    page = (ROOT / "docs" / "blueprints" / "push-worker.md").read_text()
    said = page.partition("The gauge `")[2].partition("\n\n")[0]
    gauge = said.partition("`")[0].replace(".", "_")
    assert gauge in {name for panel in PANELS for target in panel["targets"] for name in asked(target["expr"])}
    rules = {rule["alert"]: rule for rule in RULES}
    alarms = re.findall(r"`(Carillon\w+)`", said)
    assert alarms
    for name in alarms:
        assert gauge in asked(rules[name]["expr"]), name
        # Whom the alarm wakes finds the worker's queues on its page.
        assert "push worker" in (ROOT / rules[name]["annotations"]["runbook_url"]).read_text(), name
