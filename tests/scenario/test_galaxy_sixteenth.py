"""A sixteenth type is an entry, a FlatBuffers table and two templates: settings only, the program is unchanged."""

import json
import subprocess
from pathlib import Path

import pytest

from carillon.blueprints.galaxy import catalogue
from carillon.blueprints.galaxy import notificationintent as producer
from carillon.blueprints.galaxy.wire import open_wire
from carillon.domain.notifications import Template
from carillon.intake.render import render_message
from tests.support import docs_pages
from tests.support.galaxy import OCCURRED
from tests.support.galaxy_stand import GATEWAY, MAIL, Galaxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

INDEX = catalogue.SHIPPED.parent / "docs" / "README.md"
SETTINGS = """
extends = "galaxy"
[catalogue]
file = "types.toml"
[admin_emails]
"fleet.lost" = ["yard@example.com"]
"""
LOST = """
[types."fleet.lost"]
producer = "fleet_yard"
audiences = { admin_email = ["email"] }
required = { fleet_id = "string" }
"""
SCHEMA = "namespace notification;\ntable FleetLaunchedEvent { fleet_id:string; ships:int64; }\n"
SUBJECT, TEXT = "{{fleet_name}} is on its way", "{{ships}} ships of {{fleet_name}} ({{fleet_id}}) have left."
PAYLOAD = {"fleet_id": "fleet-7", "fleet_name": "Seventh", "ships": 12}
META = producer.Metadata(idempotency_key="fleet-yard:fleet-7", occurred_at_ms=OCCURRED)


@pytest.fixture
def types(tmp_path: Path) -> Path:
    """The entry of the index page, and one for administrators."""
    (shown,) = [text for text in INDEX.read_text().split("```") if text.startswith("toml\n")]
    file = tmp_path / "types.toml"
    file.write_text(shown.removeprefix("toml\n") + LOST)
    return file


async def test_a_sixteenth_type_goes_all_the_way(galaxy: Galaxy, types: Path, tmp_path: Path) -> None:
    (tmp_path / "carillon.toml").write_text(SETTINGS)
    galaxy.start("--config", str(tmp_path / "carillon.toml"))
    wire = open_wire(types, {})
    launched = await producer.publish_async(
        galaxy.redis, producer.build("fleet.launched", META, PAYLOAD, ["user-1"], wire=wire)
    )
    await galaxy.routes(launched, status="published")
    ((_, pushed),) = await galaxy.published(GATEWAY, 1)
    assert (pushed["user_id"], pushed["event_type"]) == ("user-1", "fleet.launched")
    assert decoded(tmp_path, pushed["payload_bytes"]) == {"fleet_id": "fleet-7", "ships": 12}
    ((_, mailed),) = await galaxy.published(MAIL, 1)
    command = json.loads(mailed["payload_json"])
    assert (command["template_id"], command["variables"]) == ("fleet.launched", PAYLOAD)
    template = Template(code="fleet.launched", channel="email", locale="en", subject=SUBJECT, text=TEXT)
    assert render_message(template, command["variables"]).text == "12 ships of Seventh (fleet-7) have left."
    lost = await producer.publish_async(
        galaxy.redis, producer.build("fleet.lost", META, {"fleet_id": "fleet-7"}, wire=wire)
    )
    refused = await galaxy.malformed(lost)
    assert refused["failure_code"] == "idempotency_conflict"
    other = producer.Metadata(idempotency_key="fleet-yard:fleet-7:lost", occurred_at_ms=OCCURRED)
    lost = await producer.publish_async(
        galaxy.redis, producer.build("fleet.lost", other, {"fleet_id": "fleet-7"}, wire=wire)
    )
    assert "email:email:yard@example.com" in await galaxy.routes(lost, status="published")


async def test_without_the_entry_it_is_no_type(galaxy: Galaxy, types: Path) -> None:
    galaxy.start()
    intent = producer.build("fleet.launched", META, PAYLOAD, ["user-1"], wire=open_wire(types, {}))
    refused = await galaxy.malformed(await producer.publish_async(galaxy.redis, intent))
    assert refused["failure_code"] == "unsupported_notification_type"


def decoded(folder: Path, payload: bytes) -> object:
    """What flatc makes of the bytes with the new table's own schema."""
    (folder / "fleet.fbs").write_text(SCHEMA)
    (folder / "event.bin").write_bytes(payload)
    flatc = ["flatc", "--json", "--strict-json", "--raw-binary", "--root-type", "notification.FleetLaunchedEvent"]
    subprocess.run([*flatc, "-o", folder, folder / "fleet.fbs", "--", folder / "event.bin"], check=True, timeout=60)
    return json.loads((folder / "event.json").read_text())


async def test_the_index_page_says_all_five_steps() -> None:
    assert "adding-a-type" in docs_pages.anchors(INDEX)
    assert [f"{step}. " in INDEX.read_text() for step in range(1, 6)] == [True] * 5
