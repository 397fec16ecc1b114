"""Push payloads and flatc understand one another in both directions, for each of the ten tables."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from carillon.blueprints.galaxy import catalogue
from carillon.blueprints.galaxy.wire import GalaxyWire
from tests.support.galaxy import CATALOGUE, PUSHED, claim_for, payload_for
from tests.unit.test_galaxy_encoders import decoded

FOLDER = catalogue.SHIPPED.parent
SCHEMA = FOLDER / "notification.fbs"
PUSH = GalaxyWire.open(CATALOGUE, {}).encoders["push"]


def flatc(*args: str | Path) -> None:
    done = subprocess.run(["flatc", *map(str, args)], capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


def root(name: str) -> tuple[str, str]:
    push = CATALOGUE.types[name].push
    assert push is not None
    return "--root-type", f"notification.{push.table}"


def wanted(name: str) -> dict[str, Any]:
    push = CATALOGUE.types[name].push
    assert push is not None
    return {slot.name: payload_for(name)[slot.name] for slot in push.fields}


@pytest.mark.req("S1-131", "S1-133", "S1-134", "S1-135", "S1-136", "S1-137")
@pytest.mark.req("S1-138", "S1-139", "S1-140", "S1-141", "S1-142", "S1-144", "S1-146")
@pytest.mark.parametrize("name", PUSHED)
def test_flatc_reads_what_we_write(name: str, tmp_path: Path) -> None:
    file = tmp_path / "event.bin"
    payload = PUSH(claim_for(name))["payload_bytes"]
    assert isinstance(payload, bytes)
    file.write_bytes(payload)
    flatc("--json", "--strict-json", "--raw-binary", *root(name), "-o", tmp_path, SCHEMA, "--", file)
    assert json.loads((tmp_path / "event.json").read_text()) == wanted(name)


@pytest.mark.req("S1-143", "S1-146")
@pytest.mark.parametrize("name", PUSHED)
def test_our_bindings_read_what_flatc_writes(name: str, tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text(json.dumps(wanted(name)))
    flatc("--binary", *root(name), "-o", tmp_path, SCHEMA, file)
    assert decoded(name, (tmp_path / "event.bin").read_bytes()) == wanted(name)


@pytest.mark.req("S1-132")
def test_the_schema_has_exactly_the_ten_tables_of_the_catalogue() -> None:
    text = re.sub(r"//.*", "", SCHEMA.read_text())
    assert re.findall(r"^namespace (\S+);", text, re.MULTILINE) == ["notification"]
    assert not re.search(r"\b(union|root_type|file_identifier|struct|enum)\b", text)
    tables = {
        name: re.findall(r"(\w+):(\w+);", body) for name, body in re.findall(r"table (\w+) \{(.*?)\}", text, re.DOTALL)
    }
    pushes = [entry.push for entry in CATALOGUE.types.values() if entry.push is not None]
    assert tables == {push.table: [(slot.name, slot.kind) for slot in push.fields] for push in pushes}
    assert len(tables) == 10


def slots(bindings: Path) -> dict[str, tuple[list[str], list[str]]]:
    """What the bindings of each table read and write where; the rest differs between versions of flatc."""
    _, *parts = re.split(r"^class (\w+)", bindings.read_text(), flags=re.MULTILINE)
    return {
        name: (re.findall(r"Prepend\w+Slot\(\d+", text), re.findall(r"_tab\.Offset\(\d+\)", text))
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.mark.req("S1-146")
def test_the_bindings_are_what_flatc_makes_of_the_schema(tmp_path: Path) -> None:
    flatc("--python", "--gen-onefile", "-o", tmp_path, SCHEMA)
    made = slots(tmp_path / "notification_generated.py")
    assert len(made) == 10
    assert all(written and read for written, read in made.values())
    assert slots(FOLDER / "notification_generated.py") == made
