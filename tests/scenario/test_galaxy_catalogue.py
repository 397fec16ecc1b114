"""Fifteen types, sixteen ways, and a type of one's own: from the stream to routes and both outgoing streams."""

import json
from pathlib import Path

import pytest
import yaml
from flatbuffers.encode import Get
from flatbuffers.number_types import Int64Flags, UOffsetTFlags
from flatbuffers.table import Table

from carillon.blueprints.galaxy import notificationintent
from carillon.blueprints.galaxy.catalogue import read
from carillon.blueprints.galaxy.wire import GalaxyWire
from tests.support.galaxy import CATALOGUE, WAYS, payload_for
from tests.support.galaxy_seen import intent
from tests.support.galaxy_stand import GATEWAY, MAIL, Galaxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The document's table; `push+email` unless it says otherwise.
REQUIRED = {
    "geo.review_recommended": "user_id,user_email,observed_country,usual_connection_country,review_reason",
    "game.turn.ready": "game_id,game_name,turn_number",
    "game.finished": "game_id,game_name,final_turn_number",
    "game.generation_failed": "game_id,game_name,failure_reason",
    "lobby.runtime_paused_after_start": "game_id,game_name",
    "lobby.application.submitted": "game_id,game_name,applicant_user_id,applicant_name",
    "lobby.membership.approved": "game_id,game_name",
    "lobby.membership.rejected": "game_id,game_name",
    "lobby.membership.blocked": "game_id,game_name,membership_user_id,membership_user_name,reason",
    "lobby.invite.created": "game_id,game_name,inviter_user_id,inviter_name",
    "lobby.invite.redeemed": "game_id,game_name,invitee_user_id,invitee_name",
    "lobby.invite.expired": "game_id,game_name,invitee_user_id,invitee_name",
    "lobby.race_name.registration_eligible": "game_id,game_name,race_name,eligible_until_ms",
    "lobby.race_name.registered": "race_name",
    "lobby.race_name.registration_denied": "game_id,game_name,race_name,reason",
}
EMAIL_ONLY = {"lobby.invite.expired", "lobby.race_name.registration_denied"}
PRODUCERS = {"geo": "geoprofile", "game": "game_master", "lobby": "game_lobby"}


def expected(name: str, kind: str) -> dict[str, str]:
    """Route to the status it must come to."""
    if kind == "admin_email":
        return {"email:email:ops@example.com": "published", "push:email:ops@example.com": "skipped"}
    push = "skipped" if name in EMAIL_ONLY else "published"
    return {f"push:user:user-{n}": push for n in (1, 2)} | {f"email:user:user-{n}": "published" for n in (1, 2)}


@pytest.mark.req("S1-71", "S1-72", "S1-73", "S1-74", "S1-75", "S1-76", "S1-77", "S1-78", "S1-79", "S1-80")
@pytest.mark.req("S1-81", "S1-82", "S1-83", "S1-84", "S1-85", "S1-101", "S1-145")
@pytest.mark.parametrize(("name", "kind"), WAYS)
async def test_every_way(running: Galaxy, name: str, kind: str) -> None:
    payload = payload_for(name)
    assert ",".join(payload) == REQUIRED[name]
    fields = intent(name, kind)
    assert fields["producer"] == PRODUCERS[name.partition(".")[0]]
    entry_id = await running.publish(fields)
    routes = await running.routes(entry_id, status="published")
    assert {route_id: row["status"] for route_id, row in routes.items()} == expected(name, kind)
    events = [fields for _, fields in await running.published(GATEWAY, 0) if fields["event_id"].startswith(entry_id)]
    pushed = [route for route, status in expected(name, kind).items() if (route[:4], status) == ("push", "published")]
    assert sorted(event["event_id"] for event in events) == sorted(f"{entry_id}/{route}" for route in pushed)
    assert {event["event_type"] for event in events} <= {name}
    mails = [fields for _, fields in await running.published(MAIL, 1) if fields["delivery_id"].startswith(entry_id)]
    assert len(mails) == (1 if kind == "admin_email" else 2)
    for mail in mails:
        command = json.loads(mail["payload_json"])
        assert (command["template_id"], command["variables"]) == (name, payload)


async def test_the_table_of_the_document_is_the_catalogue() -> None:
    assert set(REQUIRED) == set(CATALOGUE.types)
    assert len(WAYS) == 16


@pytest.mark.req("S1-86")
@pytest.mark.parametrize("name", ["lobby.invite.revoked", "auth.login_code", "game.turn", "GAME.TURN.READY", "*"])
async def test_no_other_type(running: Galaxy, name: str) -> None:
    entry_id = await running.publish({**intent(), "notification_type": name})
    row = await running.malformed(entry_id)
    assert row["failure_code"] == "unsupported_notification_type"
    assert not await running.rows("SELECT 1 FROM routes WHERE notification_id = $1", entry_id)


@pytest.mark.req("S1-87")
async def test_the_thirty_days_are_the_producers_duty(running: Galaxy) -> None:
    metadata = notificationintent.Metadata(idempotency_key="thirty-days", occurred_at_ms=1775121700000)
    built = notificationintent.lobby_race_name_registration_eligible(
        metadata, ["user-1"], game_id="g", game_name="n", race_name="Zorgon"
    )
    assert json.loads(built.fields["payload_json"])["eligible_until_ms"] == 1775121700000 + 30 * 24 * 3600 * 1000
    past = payload_for("lobby.race_name.registration_eligible") | {"eligible_until_ms": 1}
    for fields in (built.fields, intent("lobby.race_name.registration_eligible", payload_json=json.dumps(past))):
        await running.routes(await running.publish(fields), status="published")


FOLDER = Path(notificationintent.__file__).parent


@pytest.mark.req("S1-88", "S1-89")
async def test_the_contract_files_name_every_type_and_when_it_is_sent() -> None:
    said = (FOLDER / "api" / "intents-asyncapi.yaml").read_text(encoding="utf-8")
    contract = yaml.safe_load(said)
    assert str(contract["asyncapi"])[0] in "23"
    for name in REQUIRED:
        assert name in said, name
    probes = yaml.safe_load((FOLDER / "openapi.yaml").read_text(encoding="utf-8"))
    assert set(probes["paths"]) == {"/healthz", "/readyz"}
    index = (FOLDER / "docs" / "README.md").read_text(encoding="utf-8")
    for page in ("flows.md", "runtime.md", "runbook.md", "examples.md"):
        assert page in index
        assert (FOLDER / "docs" / page).read_text(encoding="utf-8").strip()
    eligible = str(notificationintent.lobby_race_name_registration_eligible.__doc__)
    assert "game_finished" in eligible
    assert "capability" in eligible
    assert "game_finished" in str(notificationintent.lobby_race_name_registration_denied.__doc__)
    assert "`lobby.race_name.register` commit" in str(notificationintent.lobby_race_name_registered.__doc__)


OWN_TYPE = """
[types."fleet.docked"]
producer = "harbour"
audiences = { user = ["push", "email"] }
required = { fleet_id = "string", berth = "integer" }

[types."fleet.docked".push]
table = "FleetDockedEvent"
fields = [{ name = "fleet_id", kind = "string" }, { name = "berth", kind = "int64" }]
"""


def own_type(folder: Path) -> None:
    """What adding a type takes: an entry, a table, two templates, and a file that names the entry."""
    (folder / "own.toml").write_text(OWN_TYPE)
    (folder / "own.fbs").write_text(
        "namespace notification;\ntable FleetDockedEvent { fleet_id:string; berth:int64; }\n"
    )
    templates = folder / "templates" / "fleet.docked" / "en"
    templates.mkdir(parents=True)
    (templates / "subject.tmpl").write_text("{{fleet_id}} has docked")
    (templates / "text.tmpl").write_text("{{fleet_id}} lies at berth {{berth}}.")
    (folder / "carillon.toml").write_text('extends = "galaxy"\n[catalogue]\nfile = "own.toml"\n')


@pytest.mark.req("S1-89", "S1-143")
async def test_a_sixteenth_type_needs_no_change_of_the_engine(galaxy: Galaxy) -> None:
    own_type(galaxy.folder)
    galaxy.start("--config", "carillon.toml")
    wire = GalaxyWire.open(read(galaxy.folder / "own.toml"), {})
    metadata = notificationintent.Metadata(idempotency_key="own", occurred_at_ms=1775121700000)
    payload = {"fleet_id": "f-1", "berth": 4294967296}
    built = notificationintent.build("fleet.docked", metadata, payload, ["u"], wire=wire)
    entry_id = await galaxy.publish(built.fields)
    await galaxy.routes(entry_id, status="published")
    ((_, event),) = await galaxy.published(GATEWAY, 1)
    root = event["payload_bytes"]
    table = Table(root, Get(UOffsetTFlags.packer_type, root, 0))
    assert table.String(table.Offset(4) + table.Pos) == b"f-1"
    assert table.Get(Int64Flags, table.Offset(6) + table.Pos) == 4294967296
    ((_, mail),) = await galaxy.published(MAIL, 1)
    assert json.loads(mail["payload_json"])["template_id"] == "fleet.docked"
    # The shipped ones are still there.
    await galaxy.routes(await galaxy.publish(intent()), status="published")
