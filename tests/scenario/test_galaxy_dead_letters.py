"""`carillon galaxy dead-letters` shows what was given up and how to replay it, and changes nothing."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis

from carillon.blueprints.galaxy.producing import replay_fields, xadd_line
from carillon.blueprints.galaxy.wire import GalaxyWire
from carillon.domain.claims import Settlement
from carillon.domain.intents import Intent, canonical, fingerprint
from carillon.domain.verdicts import Bury, Finish
from carillon.ledger.opening import open_ledger
from tests.support import ledger_builders as builders
from tests.support.galaxy import CATALOGUE, ENTRY_ID, fields_for
from tests.support.process import run_carillon
from tests.support.servers import Postgres, Redis

WIRE = GalaxyWire.open(CATALOGUE, {"game.generation_failed": ["ops@example.com"]})
TURN = fields_for(
    "game.turn.ready",
    payload_json=canonical({"game_id": "g-'1'", "game_name": 'Ada\'s "§" \\ war', "turn_number": 54}),
    recipient_user_ids_json='["it\'s me","user-2"]',
)
FAILED = fields_for("game.generation_failed")


WRONG = Bury("gateway_stream_publish_failed", "WRONGTYPE Operation against a key")


async def give_up(dsn: str, wrong: Bury = WRONG) -> None:
    """Two notifications; the push routes of the first and the only route of the second died."""
    ledger = await open_ledger(dsn, allow_unsafe=True)
    try:
        await ledger.migrate()
        for notification_id, fields in ((ENTRY_ID, TURN), ("1775121700000-1", FAILED)):
            intent = WIRE.decode(notification_id, fields)
            assert isinstance(intent, Intent)
            await ledger.enrol([enrolled(intent)])
        claims = await ledger.claim([builders.want()], 100, "tests")
        assert len(claims) == 5
        dead = [claim for claim in claims if claim.channel == "push" and claim.recipient_ref == "user:it's me"]
        dead += [claim for claim in claims if claim.notification_id != ENTRY_ID]
        await ledger.settle([Settlement(claim=claim, verdict=wrong if claim in dead else Finish()) for claim in claims])
    finally:
        await ledger.aclose()


def enrolled(intent: Intent) -> Any:
    routes = [
        builders.route(route_id=f"{channel}:{person.ref}", channel=channel, recipient_ref=person.ref)
        for person in intent.recipients
        for channel in intent.channels
    ]
    users = [person.user_id for person in intent.recipients if person.user_id is not None]
    return builders.enrolment(
        *routes,
        notification_id=intent.notification_id,
        notification_type=intent.notification_type,
        producer=intent.producer,
        audience_kind=intent.audience_kind,
        payload_json=canonical(intent.payload),
        idempotency_key=intent.idempotency_key,
        idempotency_ttl_seconds=60.0,
        request_fingerprint=fingerprint(intent.content),
        occurred_at_ms=intent.occurred_at_ms,
        recipient_user_ids=users or None,
    )


def ask(dsn: str, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_carillon(
        ["galaxy", "dead-letters", *args],
        env={
            "PATH": "/usr/bin:/bin",
            "NOTIFICATION_REDIS_MASTER_ADDR": "127.0.0.1:1",
            "NOTIFICATION_REDIS_PASSWORD": "unused",
            "NOTIFICATION_POSTGRES_PRIMARY_DSN": dsn,
            "NOTIFICATION_USER_SERVICE_BASE_URL": "http://127.0.0.1:1",
            "CARILLON_LEDGER__ALLOW_UNSAFE": "true",
            **environment,
        },
        timeout=60,
    )


def intents(url: str) -> list[Intent]:
    with redis.Redis.from_url(url, decode_responses=True) as client:
        entries: Any = client.xrange("notification:intents")
    read = [WIRE.decode(entry_id, fields) for entry_id, fields in entries]
    assert all(isinstance(intent, Intent) for intent in read), read
    return [intent for intent in read if isinstance(intent, Intent)]


def paste(line: str, server: Redis) -> None:
    """Once into a shell after `redis-cli`, once at the prompt of redis-cli."""
    typed = ["bash", "-c", f"redis-cli -p {server.port} {line}"]
    subprocess.run(typed, check=True, capture_output=True, timeout=60)
    prompt = ["redis-cli", "-p", str(server.port)]
    subprocess.run(prompt, input=line + "\n", check=True, capture_output=True, text=True, timeout=60)


@pytest.mark.req("S1-184", "S1-187")
def test_dead_letters_with_a_line_to_paste(postgres: Postgres, postgres_dsn: str, redis_server: Redis) -> None:
    asyncio.run(give_up(postgres_dsn))
    database = postgres_dsn.rpartition("/")[2]
    before = postgres.execute("SELECT r, d FROM routes r LEFT JOIN dead_letters d USING (route_id)", database=database)
    shown = ask(postgres_dsn)
    assert shown.returncode == 0, shown.stderr
    assert "2 of 2 dead letters" in shown.stdout
    assert "push:user:it's me: gateway_stream_publish_failed: WRONGTYPE" in shown.stdout
    assert TURN["idempotency_key"] in shown.stdout
    lines = [line for line in shown.stdout.splitlines() if line.startswith("XADD notification:intents '*' ")]
    assert len(lines) == 2
    redis_server.flush()
    for line in lines:
        paste(line, redis_server)
    replayed = intents(redis_server.url())
    assert len(replayed) == 4
    for fields in (TURN, FAILED):
        old = WIRE.decode(ENTRY_ID, fields)
        assert isinstance(old, Intent)
        one, two = (intent for intent in replayed if intent.notification_type == old.notification_type)
        assert fingerprint(one.content) == fingerprint(two.content)
        assert one.idempotency_key != old.idempotency_key
        assert (one.payload, one.recipients, one.occurred_at_ms) == (old.payload, old.recipients, old.occurred_at_ms)
    after = postgres.execute("SELECT r, d FROM routes r LEFT JOIN dead_letters d USING (route_id)", database=database)
    assert after == before


@pytest.mark.req("S1-187")
def test_for_machines_and_for_the_untold_alone(postgres_dsn: str) -> None:
    asyncio.run(give_up(postgres_dsn))
    every = json.loads(ask(postgres_dsn, "--json", NOTIFICATION_INTENTS_STREAM="other:intents").stdout)
    (turn,) = [item for item in every["items"] if item["record"]["notificationId"] == ENTRY_ID]
    assert (every["total"], len(every["items"])) == (2, 2)
    assert turn["deadLetters"][0]["recoveryHint"]
    assert turn["record"]["idempotencyKey"] == TURN["idempotency_key"]
    assert turn["xadd"].startswith("XADD other:intents '*' ")
    assert "user-2" in turn["xadd"]
    untold = json.loads(ask(postgres_dsn, "--json", "--only-dead").stdout)["items"]
    (turn,) = [item for item in untold if item["record"]["notificationId"] == ENTRY_ID]
    assert "user-2" not in turn["xadd"]
    first = json.loads(ask(postgres_dsn, "--json", "--limit", "1").stdout)
    assert (first["total"], len(first["items"])) == (2, 1)


def test_words_that_begin_with_their_cause_say_it_once(postgres_dsn: str) -> None:
    asyncio.run(give_up(postgres_dsn, Bury("drill", "drill: refused")))
    shown = ask(postgres_dsn).stdout
    assert "push:user:it's me: drill: refused\n" in shown
    assert "drill: drill" not in shown
    (row, *_) = json.loads(ask(postgres_dsn, "--json").stdout)["items"][0]["deadLetters"]
    assert (row["failureClassification"], row["failureMessage"]) == ("drill", "drill: refused"), "machines get both"


def test_an_empty_ledger_and_none_at_all(postgres_dsn: str, tmp_path: Path) -> None:
    async def make() -> None:
        ledger = await open_ledger(postgres_dsn, allow_unsafe=True)
        await ledger.migrate()
        await ledger.aclose()

    asyncio.run(make())
    assert "0 of 0 dead letters" in ask(postgres_dsn).stdout
    missing = ask(f"sqlite:///{tmp_path}/nowhere.db")
    assert missing.returncode == 1
    assert "there is no ledger" in missing.stderr
    assert not list(tmp_path.iterdir())


def test_nothing_of_this_blueprint_changes_a_route() -> None:
    listed = run_carillon(["galaxy", "--help"], check=True, timeout=60)
    assert "dead-letters" in listed.stdout
    assert "redrive" not in listed.stdout


def test_a_line_can_hold_whatever_json_can() -> None:
    record = {
        "notification_id": "1-0",
        "notification_type": "game.turn.ready",
        "producer": "game_master",
        "audience_kind": "user",
        "occurred_at": 7,
        "payload_json": '{"a":"\'$(x)`y`\\\\"}',
        "recipient_user_ids": ["a", "b"],
    }
    fields = replay_fields(record, {"user:b"})
    assert fields["recipient_user_ids_json"] == '["b"]'
    line = xadd_line("a stream", fields)
    assert line.startswith("XADD 'a stream' '*' notification_type game.turn.ready ")
    assert line.count("'") % 2 == 0
