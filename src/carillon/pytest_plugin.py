"""The pytest plugin of Carillon: the fixture `carillon_outbox`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from carillon.testing import Outbox


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one setting of the plugin."""
    parser.addini(
        "carillon_config", "The carillon.toml of carillon_outbox, seen from the root of the tests.", default=""
    )


@pytest.fixture
def carillon_outbox(tmp_path: Path, request: pytest.FixtureRequest) -> "Iterator[Outbox]":
    """A Carillon for one test; every provider is a sandbox."""
    # Here, because every run of pytest loads this module and few use the fixture.
    from carillon.testing import Outbox  # noqa: PLC0415 - as said

    named = request.config.getini("carillon_config")
    with Outbox(tmp_path, request.config.rootpath / named if named else None) as outbox:
        yield outbox
