"""A page for each blueprint, and what it says of channels and of the environment is so."""

import re

import pytest

from carillon.config.reading import load
from tests.support import docs_facts, docs_pages
from tests.support.sources import ROOT

FOLDER = ROOT / "docs" / "blueprints"
NAMES = sorted(
    file.parent.name.replace("_", "-") for file in (ROOT / "src/carillon/blueprints").glob("*/blueprint.toml")
)


def test_every_blueprint_has_its_page() -> None:
    assert (
        sorted(page.stem for page in FOLDER.glob("*.md") if page.name not in {"README.md", "listo-scenarios.md"})
        == NAMES
    )
    listed = re.findall(r"^\| \[([a-z-]+)\]\(\1\.md\)", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_channels_and_variables(name: str) -> None:
    page = FOLDER / f"{name}.md"
    told = docs_facts.blueprint(name)
    tables = [row for row in docs_pages.rows(page) if row[0].startswith("`")]
    channels = {docs_pages.word(row[0]): re.findall(r"`([^`]+)`", row[1]) for row in tables if row[0][1].islower()}
    assert channels == told.get("channels", {})
    assert {docs_pages.word(row[0]) for row in tables if row[0][1].isupper()} == set(told.get("env_required", {}))


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_that_is_printed_is_enough(name: str) -> None:
    exports = re.findall(r"^(?:\$ )?export (\w+)='?([^'\n]+)'?$", (FOLDER / f"{name}.md").read_text(), re.MULTILINE)
    settings = load(name, environ=dict(exports))
    assert settings.blueprint == name
