"""The reference pages say what the code says, links lead somewhere, and named commands and functions exist."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from carillon.config.environment import COMMAND_LINE, PREFIX
from carillon.config.reading import load
from carillon.domain.notifications import TERMINAL, Status
from carillon.upkeep.metrics.queues import QUEUES
from carillon.web.auth import Refusal
from carillon.web.problems import KINDS
from tests.support import docs_facts, docs_pages
from tests.support.docs_pages import rows, word
from tests.support.sources import ROOT, code_files
from tests.unit.test_config import NEEDED

REFERENCE = ROOT / "docs" / "reference"
PAGES = [pytest.param(page, id=docs_pages.name(page)) for page in docs_pages.pages()]
_SECTIONS = {
    "Retry policies": 'policy.retry."origin/channel".',
    "Breaker policies": "policy.breaker.provider.",
    "Rates": "policy.rate.provider.",
    "Lanes": "lanes.name.",
    "Groups": "groups.provider.",
    "Group members": "groups.provider.members.name.",
    "Tenants": "tenant.id.",
    "Categories": "categories.name.",
    "Queues": "queue.name.",
    "Stream": "stream.",
    "Directory": "directory.",
    "Billing": "billing.",
    "Plans": "billing.plans.id.",
    "Life of subscriptions": "billing.life.",
    "Instruments": "metrics.instruments.what.",
    "Task picker": "task_picker.",
    "Live streams": "sse.",
    **{
        f"Provider {kind}": f"{kind}: "
        for kind in (
            "smtp",
            "fcm",
            "webhook",
            "twilio",
            "sns",
            "sendgrid",
            "acs",
            "sandbox",
            "apprise",
            "redis_stream",
            "sse",
        )
    },
}
_NAMED_IN_SOURCE = re.compile(r"\]\(\.\./\.\./src/carillon/(?P<file>[\w./]+)\):\s+`(?P<name>[\w.]+)`")
_COMMAND = re.compile(r"(?<![\w/.'\[-])carillon((?: [a-z][a-z-]*)+)")


def test_settings() -> None:
    page = REFERENCE / "settings.md"
    said = {word(cells[0]): cells[1] for cells in rows(page, "All sections")}
    for heading, path in _SECTIONS.items():
        said |= {path + word(cells[0]): cells[1] for cells in rows(page, heading)}
    assert said == docs_facts.settings()


def test_environment() -> None:
    page = REFERENCE / "environment.md"
    named = {word(cells[0]): re.findall(r"`([^`]+)`", cells[1]) for cells in rows(page, "Names of their own")}
    local = docs_facts.blueprint()["env"]
    assert named == {name: [paths] if isinstance(paths, str) else paths for name, paths in local.items()}
    galaxy = docs_facts.blueprint("galaxy")
    told = {word(cells[0]): cells[1:] for cells in rows(page, "Names of galaxy")}
    filled = {name: re.findall(r"`([^`]+)`", cells[0]) for name, cells in told.items() if len(cells) == 2}
    assert filled == {name: [paths] if isinstance(paths, str) else paths for name, paths in galaxy["env"].items()}
    assert {name for name, cells in told.items() if cells[-1] == "required"} == set(galaxy["env_required"])
    assert {name for name, cells in told.items() if cells[0].startswith("refused")} == set(galaxy["env_refused"])
    assert {name for name, cells in told.items() if cells[0].startswith("no effect")} == set(galaxy["env_ignored"])
    listo = {word(cells[0]): re.findall(r"`([^`]+)`", cells[1]) for cells in rows(page, "Names of listo")}
    known = docs_facts.blueprint("listo")["env"]
    assert listo == {name: [paths] if isinstance(paths, str) else paths for name, paths in known.items()}
    billing = {word(cells[0]): (word(cells[1]), cells[2] == "required") for cells in rows(page, "Names of billing")}
    tables = docs_facts.blueprint("billing")
    assert billing == {name: (path, name in tables["env_required"]) for name, path in tables["env"].items()}
    sse = {word(cells[0]): word(cells[1]) for cells in rows(page, "Names of sse")}
    assert sse == docs_facts.blueprint("sse")["env"]
    push = {word(cells[0]): (word(cells[1]), cells[2] == "required") for cells in rows(page, "Names of push-worker")}
    tables = docs_facts.blueprint("push-worker")
    assert push == {name: (path, name in tables["env_required"]) for name, path in tables["env"].items()}
    others = {word(cells[0]) for cells in rows(page, "Not settings")}
    assert {name for name in others if name.startswith(PREFIX)} == {PREFIX + name for name in COMMAND_LINE}


@pytest.mark.req("P-820")
def test_the_variables_of_every_blueprint_have_their_section() -> None:
    """`local` has its names at the top."""
    sections = set(re.findall(r"^## Names of (.+)$", (REFERENCE / "environment.md").read_text(), re.MULTILINE))
    files = (ROOT / "src" / "carillon" / "blueprints").glob("*/blueprint.toml")
    names = {file.parent.name.replace("_", "-") for file in files}
    assert sections - {"their own"} == names - {"local"}


def test_endpoints_and_problems() -> None:
    page = REFERENCE / "http-api.md"
    assert {(word(cells[0]), word(cells[1])) for cells in rows(page, "Endpoints")} == docs_facts.endpoints()
    told = {word(cells[0]): (int(cells[1]), cells[2]) for cells in rows(page, "Errors")}
    assert told == KINDS
    assert {word(cells[0]) for cells in rows(page, "Sending")} | {"variables"} == docs_facts.send_fields()


def test_commands() -> None:
    page = REFERENCE / "cli.md"
    commands = docs_facts.commands()
    assert set(re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)) == set(commands)
    for command, options in commands.items():
        assert {word(cells[0]) for cells in rows(page, command) if cells[0].startswith("`--")} == options, command


def test_the_page_of_commands_says_what_help_says() -> None:
    """A row may say more than the help, and begins with it."""
    page = REFERENCE / "cli.md"
    texts = docs_facts.help_texts()
    sections = dict(re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL))
    assert not [command for command, (said, _) in texts.items() if _plain(said) not in _plain(sections[command])]
    for command, (_, options) in texts.items():
        told = {word(cells[0]): _plain(cells[-1]) for cells in rows(page, command)}
        assert not {name: said for name, said in options.items() if not told[name].startswith(_plain(said).rstrip("."))}


def _plain(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def test_tables() -> None:
    page = REFERENCE / "tables.md"
    tables = docs_facts.tables()
    for table in set(tables) - {"schema_migrations", "schema_parts", "claim_tokens"}:
        cells = [row for row in rows(page, table) if len(row) == 2]
        assert [word(cell[0]) for cell in cells] == tables[table], table
    states = {word(row[0]): row[2] == "yes" for row in rows(page, "routes") if len(row) == 3}
    assert states == {status: status in TERMINAL for status in Status}


def test_events_and_metrics() -> None:
    page = REFERENCE / "events.md"
    told = rows(page, "Log events")
    events = {word(cells[0]): set(re.findall(r"`(\w+)`", cells[3])) for cells in told if len(cells) == 4}
    assert events == docs_facts.events()
    others = {word(cells[0]) for cells in told if len(cells) == 2}
    assert others == docs_facts.process_events([path.read_text() for path in code_files(".py", folders=("src",))])
    assert [word(cells[0]) for cells in rows(page, "Refused tokens")] == list(get_args(Refusal))
    instruments = load("galaxy", environ=NEEDED).metrics.instruments
    for heading, table in (("Metrics", None), ("Metrics of queues", QUEUES), ("Metrics of galaxy", instruments)):
        metrics = {
            word(cells[0]): (word(cells[1]), tuple(re.findall(r"`(\w+)`", cells[3]))) for cells in rows(page, heading)
        }
        assert metrics == docs_facts.metrics(table), heading


def test_drills_and_fault_points() -> None:
    page = ROOT / "docs" / "how-to" / "rehearse-failures.md"
    assert {word(cells[0]) for cells in rows(page, "One channel, from now on")} == docs_facts.drill_fields()
    sources = [path.read_text() for path in code_files(".py", folders=("src",))]
    told = {word(cells[0]) for cells in rows(page, "Kill the process at a chosen point")}
    assert told == docs_facts.fault_points(sources) | {"exit9", "stop", "sleep:200", "raise"}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in docs_pages.links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in docs_pages.anchors(there), target


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_named_exist(page: Path) -> None:
    known = docs_facts.commands()
    spans = re.findall(r"`(carillon [^`]+)`", docs_pages.prose(page))
    typed = [
        step.command for block in docs_pages.blocks(page) if block.kind == "console" for step in docs_pages.steps(block)
    ]
    for text in (*spans, *typed):
        for found in _COMMAND.finditer(text):
            words = found[0].split()
            command = next((name for end in (3, 2) if (name := " ".join(words[:end])) in known), None)
            groups = {name.rpartition(" ")[0] for name in known}
            assert command is not None or found[0] in groups, text
            rest = text[found.start() :].partition("|")[0]
            options = set(re.findall(r"(?<=\s)--[a-z-]+", rest))
            assert command is None or options <= known[command] | {"--help"}, text


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in docs_pages.pages():
        for target in re.findall(r"(?:`|^\$ |^    )make ([a-z]+)", page.read_text(), re.MULTILINE):
            assert target in targets, docs_pages.name(page)


def test_the_way_of_one_notification_names_what_exists() -> None:
    text = (ROOT / "docs" / "explanation" / "one-notification.md").read_text()
    named = [(found["file"], found["name"]) for found in _NAMED_IN_SOURCE.finditer(text)]
    assert len(named) == text.count("../../src/carillon/")
    for file, name in named:
        source = (ROOT / "src" / "carillon" / file).read_text()
        if file.endswith(".sql"):
            assert f"-- name: {name}\n" in source, (file, name)
        else:
            assert name in defined(ast.parse(source)), (file, name)


def defined(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = (inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found
