"""Commands for the mail service: template mode, one address each, nothing trimmed."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from carillon.blueprints import galaxy as blueprint
from tests.support.galaxy import TYPES, payload_for
from tests.support.galaxy_seen import intent
from tests.support.galaxy_stand import MAIL, Galaxy

pytestmark = pytest.mark.asyncio(loop_scope="module")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def mails_of(stand: Galaxy, entry_id: str) -> list[dict[str, Any]]:
    await stand.routes(entry_id, status="published")
    entries = await stand.published(MAIL, 1)
    return [fields for _, fields in entries if fields["delivery_id"].startswith(f"{entry_id}/")]


@pytest.mark.req("S1-148", "S1-149", "S1-151", "S1-147")
async def test_a_command_for_a_user(running: Galaxy) -> None:
    payload = payload_for("game.turn.ready") | {"game_name": 'Ünï "quoted" \\ 🚀'}
    fields = intent(
        payload_json=json.dumps(payload), recipient_user_ids_json='["user-1"]', request_id="r-1", trace_id="t-1"
    )
    entry_id = await running.publish(fields)
    (mail,) = await mails_of(running, entry_id)
    (record,) = await running.rows("SELECT accepted_at FROM records WHERE notification_id = $1", entry_id)
    assert json.loads(mail.pop("payload_json")) == {
        "to": ["user-1@example.com"],
        "cc": [],
        "bcc": [],
        "reply_to": [],
        "template_id": "game.turn.ready",
        "locale": "en",
        "variables": payload,
        "attachments": [],
    }
    assert mail == {
        "delivery_id": f"{entry_id}/email:user:user-1",
        "source": "notification",
        "payload_mode": "template",
        "idempotency_key": f"notification:{entry_id}/email:user:user-1",
        "requested_at_ms": str((record["accepted_at"] - EPOCH) // timedelta(milliseconds=1)),
        "request_id": "r-1",
        "trace_id": "t-1",
    }


@pytest.mark.req("S1-151")
async def test_the_moment_is_never_rounded_up(running: Galaxy) -> None:
    for _ in range(8):
        entry_id = await running.publish(intent())
        mails = await mails_of(running, entry_id)
        (record,) = await running.rows("SELECT accepted_at FROM records WHERE notification_id = $1", entry_id)
        whole = (record["accepted_at"] - EPOCH) // timedelta(milliseconds=1)
        assert {mail["requested_at_ms"] for mail in mails} == {str(whole)}


@pytest.mark.req("S1-148")
async def test_what_is_not_known_is_left_out(running: Galaxy) -> None:
    for mail in await mails_of(running, await running.publish(intent())):
        assert not {"request_id", "trace_id"} & set(mail)


@pytest.mark.req("S1-150", "S1-151")
async def test_every_address_has_its_own_command(galaxy: Galaxy) -> None:
    galaxy.start(NOTIFICATION_ADMIN_EMAILS_GEO_REVIEW_RECOMMENDED="one@example.com,two@example.com")
    entry_id = await galaxy.publish(intent("geo.review_recommended"))
    mails = await mails_of(galaxy, entry_id)
    commands = [json.loads(mail["payload_json"]) for mail in mails]
    assert sorted(command["to"] for command in commands) == [["one@example.com"], ["two@example.com"]]
    assert len({mail["requested_at_ms"] for mail in mails}) == 1
    assert {mail["delivery_id"] for mail in mails} == {
        f"{entry_id}/email:email:{name}@example.com" for name in ("one", "two")
    }


@pytest.mark.req("S1-147")
async def test_mails_are_never_trimmed(running: Galaxy) -> None:
    before = await running.redis.xlen(MAIL)
    people = json.dumps([f"u{n}" for n in range(1500)])
    await running.routes(await running.publish(intent("lobby.invite.expired", recipient_user_ids_json=people)))
    assert len(await running.published(MAIL, before + 1500)) == before + 1500


@pytest.mark.req("S1-152", "S1-04")
async def test_thirty_assets_and_no_login_code() -> None:
    folder = Path(blueprint.__file__).parent / "templates"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {f"{name}/en/{part}.tmpl" for name in TYPES for part in ("subject", "text")}
    assert len(found) == 30
    assert not [name for name in found if "auth" in name]
