"""A protocol has two implementors, test doubles counted; with one it is that one's type."""

from pathlib import Path

from scripts.house_protocols import lonely_protocols
from scripts.house_rules import read_modules
from tests.support.sources import modules_of_tests, package_modules

LONELY_ON_PURPOSE: dict[str, str] = {
    "src/carillon/upkeep/api/queues.py InspectedQueues": "upkeep may not import carillon.queues; compose hands it over",
    "src/carillon/upkeep/api/sandbox.py SandboxControls": "upkeep may not import providers; compose hands them over",
    "src/carillon/upkeep/api/targets.py ChangedTargets": "upkeep may not import outbound; compose hands them over",
    "src/carillon/blueprints/galaxy/producing.py StreamClient": "the producer's own Redis client implements it",
    "src/carillon/blueprints/galaxy/producing.py AsyncStreamClient": "as above, for asynchronous clients",
}
"""The place and name of a protocol, and why it is one with a single implementor."""


def test_a_protocol_has_two_implementors() -> None:
    found = lonely_protocols(package_modules(), modules_of_tests())
    assert not LONELY_ON_PURPOSE.keys() - found.keys(), "no longer lonely: take it off the list"
    assert not found.keys() - LONELY_ON_PURPOSE.keys(), found


def test_control_a_protocol_with_one_implementor_is_seen(tmp_path: Path) -> None:
    package, tests = tmp_path / "src" / "carillon", tmp_path / "tests"
    package.mkdir(parents=True)
    tests.mkdir()
    (package / "ports.py").write_text(
        "class Lonely(Protocol):\n    name: str\n    def send(self, one: int) -> int: ...\n"
        "class Doubled(Protocol):\n    def stop(self) -> None: ...\n"
        "class Function(Protocol):\n    def __call__(self, *, one: int) -> int: ...\n"
        "class Above(Protocol):\n    def go(self) -> int: ...\n"
        "class Below(Above, Protocol):\n    def back(self) -> int: ...\n"
        "class Callbacks(asyncio.Protocol):\n    def lost(self) -> None: ...\n"
    )
    (package / "one.py").write_text(
        "class One:\n    def __init__(self): self.name = 'one'\n    def send(self, one): ...\n    def stop(self): ...\n"
        "class TooMany:\n    name = 'many'\n    def send(self, one, two): ...\n"
        "class Climber:\n    def go(self): ...\n    def back(self): ...\n"
    )
    (tests / "test_one.py").write_text("class Fake:\n    def stop(self): ...\nclass Goer:\n    def go(self): ...\n")
    assert lonely_protocols(read_modules(tmp_path), read_modules(tmp_path, ".", "tests")) == {
        "src/carillon/ports.py Lonely": ["src/carillon/one.py"],
        "src/carillon/ports.py Below": ["src/carillon/one.py"],
    }
