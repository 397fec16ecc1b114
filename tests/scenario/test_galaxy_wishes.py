"""What an intent of galaxy may ask for beyond its document: kept, or refused by name."""

import json
from pathlib import Path

import pytest

from tests.support.galaxy import fields_for
from tests.support.galaxy_stand import Galaxy

pytestmark = pytest.mark.asyncio(loop_scope="module")
SILENT = "no provider of push can report that a message was read (it reports nothing): "
SILENT += "put push last, or choose another until"
SETTINGS = 'extends = "galaxy"\n[categories.offers]\nchannels = { push = false }\n'


@pytest.mark.req("P-530", "P-204")
async def test_wishes_are_kept(galaxy: Galaxy, tmp_path: Path) -> None:
    (tmp_path / "galaxy.toml").write_text(SETTINGS)
    galaxy.users.people["kiwi"] = {"email": "kiwi@example.com", "time_zone": "Pacific/Auckland"}
    galaxy.start("--config", str(tmp_path / "galaxy.toml"))
    turn = fields_for("game.turn.ready", recipient_user_ids_json='["kiwi"]')

    async def given(key: str, **more: str) -> dict[str, dict[str, object]]:
        entry_id = await galaxy.publish({**turn, "idempotency_key": key, **more})
        return await galaxy.routes(entry_id)

    offered = await given("category", category="offers")
    assert offered["push:user:kiwi"]["status"] == "skipped"
    assert offered["push:user:kiwi"]["last_error_classification"] == "category"
    later = await given("zone", scheduled_for="2096-01-31T18:00:00", time_zone="recipient")
    moments = {str(row["next_attempt_at"]) for row in later.values()}
    assert moments == {"2096-01-31 05:00:00+00:00"}
    alone = await given("channels", channels='["email"]', scheduledFor="2096-01-31T18:00:00Z")
    assert alone["email:user:kiwi"]["status"] == "pending"
    assert alone["push:user:kiwi"]["last_error_message"] == "not among the channels of the intent"
    over = await given("expiry", expires_at="1000")
    assert {row["status"] for row in over.values()} <= {"pending", "skipped"}


@pytest.mark.req("P-532", "P-531")
async def test_what_this_blueprint_cannot_keep_is_refused_by_name(running: Galaxy) -> None:
    file = {"filename": "a.txt", "contentType": "text/plain", "content": "YQ=="}
    downstream = "another service renders the messages here (templates.render), and gets their data alone"
    refused = {
        "digest": (
            {"digest": '{"key":"turns","window":"1h"}'},
            "digest: the ledger of a blueprint with probes alone (http.surface) gathers nothing; send each event",
        ),
        "attachments": (
            {"channels": '["email"]', "attachments": json.dumps([file])},
            f"attachments: {downstream}",
        ),
        "cc": ({"cc": '["bob@example.org"]'}, "cc: only the channel email has it"),
        "headers": ({"channels": '["email"]', "headers": '{"X-A":"b"}'}, f"headers: {downstream}"),
        "until": (
            {"channels": '["push","email"]', "until": "read", "after": "10m"},
            SILENT,
        ),
        "channels": (
            {"channels": '["sms"]'},
            "channels: game.turn.ready has no sms; its channels here are push, email",
        ),
        "time_zone": (
            {"time_zone": "recipient"},
            "timeZone goes with a scheduledFor without an offset, such as 2027-01-31T18:00:00",
        ),
        "category": ({"category": "noise"}, None),
    }
    for name, (more, words) in refused.items():
        entry = fields_for("game.turn.ready", idempotency_key=f"refused:{name}") | more
        row = await running.malformed(await running.publish(entry))
        if words is None:
            assert "there is no category noise" in row["failure_message"]
        else:
            assert row["failure_message"] == words


@pytest.mark.req("P-532")
async def test_a_throttle_is_refused_at_the_start(galaxy: Galaxy, tmp_path: Path) -> None:
    (tmp_path / "galaxy.toml").write_text('extends = "galaxy"\n[categories.offers]\nthrottle = "3 in 1h"\n')
    program = galaxy.launch("--config", str(tmp_path / "galaxy.toml"))
    assert program.wait(60) == 2
    assert "categories.offers.throttle" in program.tail()
