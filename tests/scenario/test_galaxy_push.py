"""Client events for the gateway: one trimmed XADD each, and a FlatBuffers table that flatc reads."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from carillon.blueprints import galaxy as blueprint
from carillon.blueprints.galaxy import notification_generated
from tests.support.galaxy import CATALOGUE, PUSHED, TYPES, payload_for
from tests.support.galaxy_seen import intent, monitored
from tests.support.galaxy_stand import GATEWAY, MAIL, Galaxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCHEMA = Path(blueprint.__file__).parent / "notification.fbs"
# As the document lists them, which fixes the slots.
TABLES = {
    "game.turn.ready": ("GameTurnReadyEvent", "game_id turn_number"),
    "game.finished": ("GameFinishedEvent", "game_id final_turn_number"),
    "lobby.application.submitted": ("LobbyApplicationSubmittedEvent", "game_id applicant_user_id"),
    "lobby.membership.approved": ("LobbyMembershipApprovedEvent", "game_id"),
    "lobby.membership.rejected": ("LobbyMembershipRejectedEvent", "game_id"),
    "lobby.membership.blocked": ("LobbyMembershipBlockedEvent", "game_id membership_user_id reason"),
    "lobby.invite.created": ("LobbyInviteCreatedEvent", "game_id inviter_user_id"),
    "lobby.invite.redeemed": ("LobbyInviteRedeemedEvent", "game_id invitee_user_id"),
    "lobby.race_name.registration_eligible": (
        "LobbyRaceNameRegistrationEligibleEvent",
        "game_id race_name eligible_until_ms",
    ),
    "lobby.race_name.registered": ("LobbyRaceNameRegisteredEvent", "race_name"),
}


async def event_of(stand: Galaxy, fields: dict[str, str]) -> dict[str, Any]:
    """The client event of an intent for one user."""
    entry_id = await stand.publish(fields | {"recipient_user_ids_json": '["pilot"]'})
    await stand.routes(entry_id, status="published")
    entries = await stand.published(GATEWAY, 1)
    (event,) = [fields for _, fields in entries if fields["event_id"].startswith(entry_id)]
    assert event["event_id"] == f"{entry_id}/push:user:pilot"
    return event


def by_flatc(folder: Path, table: str, payload: bytes) -> dict[str, Any]:
    """What the vendor's own compiler reads in the bytes."""
    (folder / "event.bin").write_bytes(payload)
    arguments = ["--json", "--strict-json", "--raw-binary", "--defaults-json", "--root-type", f"notification.{table}"]
    command = ["flatc", *arguments, "-o", str(folder), str(SCHEMA), "--", str(folder / "event.bin")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    found: dict[str, Any] = json.loads((folder / "event.json").read_text())
    return found


@pytest.mark.req("S1-133", "S1-134", "S1-135", "S1-136", "S1-137", "S1-138", "S1-139", "S1-140", "S1-141", "S1-142")
@pytest.mark.req("S1-131", "S1-144", "S1-146")
@pytest.mark.parametrize("name", TABLES)
async def test_every_table(running: Galaxy, tmp_path: Path, name: str) -> None:
    table, slots = TABLES[name]
    event = await event_of(running, intent(name, "user"))
    payload = payload_for(name)
    wanted = {slot: payload[slot] for slot in slots.split()}
    assert by_flatc(tmp_path, table, event["payload_bytes"]) == wanted
    root = getattr(notification_generated, table).GetRootAs(event["payload_bytes"], 0)
    for slot, value in wanted.items():
        read = getattr(root, "".join(word.capitalize() for word in slot.split("_")))()
        assert (read.decode() if isinstance(read, bytes) else read) == value
    # No file identifier: four bytes of offset lead straight to the table.
    assert event["payload_bytes"][4:8] != b"NOTI"
    for field, value in payload.items():
        if field not in wanted and isinstance(value, str):
            assert value.encode() not in event["payload_bytes"], field


@pytest.mark.req("S1-132")
async def test_ten_tables_in_one_namespace() -> None:
    assert set(TABLES) == set(PUSHED)
    text = SCHEMA.read_text()
    assert "namespace notification;" in text
    found = [line.split()[1] for line in text.splitlines() if line.startswith("table ")]
    assert sorted(found) == sorted(table for table, _ in TABLES.values())
    assert "union" not in text
    assert "file_identifier" not in text


@pytest.mark.req("S1-143")
async def test_numbers_have_sixty_four_bits(running: Galaxy, tmp_path: Path) -> None:
    payload = payload_for("game.turn.ready") | {"turn_number": 2**40}
    event = await event_of(running, intent(payload_json=json.dumps(payload)))
    assert by_flatc(tmp_path, "GameTurnReadyEvent", event["payload_bytes"])["turn_number"] == 2**40


@pytest.mark.req("S1-127", "S1-25", "S1-147")
async def test_events_are_trimmed_and_mails_are_not(running: Galaxy) -> None:
    async with monitored(running.redis) as commands:
        await event_of(running, intent())
        (push,) = await commands.until(["XADD", GATEWAY])
        (mail,) = await commands.until(["XADD", MAIL])
    assert push[:6] == ["XADD", GATEWAY, "MAXLEN", "~", "1024", "*"]
    assert mail[:3] == ["XADD", MAIL, "*"]


@pytest.mark.req("S1-128", "S1-129")
async def test_all_fields_of_an_event(running: Galaxy) -> None:
    event = await event_of(running, intent(request_id="r-1", trace_id="t-1"))
    payload = event.pop("payload_bytes")
    assert isinstance(payload, bytes)
    event_id = event.pop("event_id")
    assert event_id.endswith("/push:user:pilot")
    assert event == {"user_id": "pilot", "event_type": "game.turn.ready", "request_id": "r-1", "trace_id": "t-1"}
    assert "device_session_id" not in event


@pytest.mark.req("S1-129", "S1-130")
async def test_what_is_not_known_is_left_out(running: Galaxy) -> None:
    assert set(await event_of(running, intent())) == {"user_id", "event_type", "event_id", "payload_bytes"}
    some = await event_of(running, intent(request_id="", trace_id="t-2"))
    assert set(some) == {"user_id", "event_type", "event_id", "payload_bytes", "trace_id"}


@pytest.mark.req("S1-145")
async def test_what_never_becomes_an_event(running: Galaxy) -> None:
    quiet = [
        (name, "user")
        for name in TYPES
        if CATALOGUE.types[name].push is None and "user" in CATALOGUE.types[name].audiences
    ]
    quiet += [(name, "admin_email") for name in TYPES if "admin_email" in CATALOGUE.types[name].audiences]
    assert len(quiet) == 6
    assert ("lobby.application.submitted", "admin_email") in quiet
    ids = [await running.publish(intent(name, kind)) for name, kind in quiet]
    for entry_id in ids:
        routes = await running.routes(entry_id, status="published")
        assert {row["status"] for row in routes.values() if row["channel"] == "push"} == {"skipped"}
    # The last word is one that does become an event: whatever was pushed before it is in the stream by then.
    loud = await running.publish(intent())
    await running.routes(loud, status="published")
    pushed = {fields["event_id"].partition("/")[0] for _, fields in await running.published(GATEWAY, 2)}
    assert loud in pushed
    assert not pushed & set(ids)
