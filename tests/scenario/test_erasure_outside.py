"""An erasure and what brokers keep beside the ledger: emptied, waited for, or named with its end."""

import json
import os
from typing import Any

import asyncpg
import pytest

from carillon.ledger.columns import COLUMNS
from tests.support.billing_stand import QUEUES, Billing, stand_fixture
from tests.support.galaxy_seen import intent
from tests.support.galaxy_stand import GATEWAY, INTENTS, MAIL, OFFSET, Galaxy
from tests.support.process import run_carillon
from tests.support.queue_stand import envelope
from tests.support.vendor import Reply

pytestmark = pytest.mark.req("P-635")

PERSON, OTHER = "canary-person", "other-person"
UPDATE = "q:pay:subscription_update"
billing: Any = stand_fixture(params=("sqlite", "postgres"))


def erase(*words: str, code: int = 0, env: dict[str, str], cwd: Any) -> Any:
    done = run_carillon(["people", "erase", PERSON, "--yes", *words], env={**os.environ, **env}, cwd=cwd)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout


async def tables_with(galaxy: Galaxy, text: str) -> list[str]:
    found = []
    for table in COLUMNS:
        try:
            rows = await galaxy.rows(f"SELECT * FROM {table}")  # noqa: S608 - our own names
        except asyncpg.UndefinedTableError:
            continue
        if text in json.dumps(rows, default=str):
            found.append(table)
    return found


async def keys_with(galaxy: Galaxy, text: str) -> set[str]:
    """The keys of Redis in which a text can be read, whatever their type."""
    found = set()
    for key in await galaxy.redis.keys("*"):
        dumped = (
            await galaxy.redis.xrange(key)
            if await galaxy.redis.type(key) == b"stream"
            else await galaxy.redis.dump(key)
        )
        if text.encode() in (dumped if isinstance(dumped, bytes) else repr(dumped).encode()):
            found.add(key.decode())
    return found


@pytest.mark.asyncio(loop_scope="module")
async def test_galaxy_names_every_stream_that_still_has_the_person(galaxy: Galaxy) -> None:
    galaxy.start()
    for person in (PERSON, OTHER, PERSON):
        await galaxy.publish(intent(recipient_user_ids_json=json.dumps([person])))
    last = await galaxy.publish(intent(recipient_user_ids_json=json.dumps([OTHER])))
    await galaxy.published(GATEWAY, 4)
    await galaxy.published(MAIL, 4)
    await galaxy.routes(last, status="published")
    assert {"records", "routes"} <= set(await tables_with(galaxy, PERSON))
    found = erase("--json", "--blueprint", "galaxy", env=galaxy.environment(), cwd=galaxy.folder)
    assert (found["finished"], found["unfinished"]) == (True, [])
    assert await tables_with(galaxy, "canary") == []
    assert {"records", "routes"} <= set(await tables_with(galaxy, OTHER))
    named = {one["place"].removeprefix("Redis stream "): one for one in found["outside"]}
    # No key of Redis has the person unless the answer says so; and each that is named is one that has.
    assert await keys_with(galaxy, "canary") == set(named) == {INTENTS, GATEWAY, MAIL}
    assert named[INTENTS]["kept"] == named[MAIL]["kept"] == "until those who own the stream trim it"
    assert named[GATEWAY]["kept"] == "until about 1024 newer entries are in it"
    said = erase("--blueprint", "galaxy", env=galaxy.environment(), cwd=galaxy.folder)
    assert f"outside: Redis stream {INTENTS} may still hold intents as producers wrote them" in said


@pytest.mark.asyncio(loop_scope="module")
async def test_what_galaxy_has_read_can_be_trimmed_and_nothing_unread_is_lost(galaxy: Galaxy) -> None:
    """The recipe of the guide: the entries before the stored offset."""
    program = galaxy.start()
    await galaxy.publish(intent(recipient_user_ids_json=json.dumps([PERSON])))
    last = await galaxy.publish(intent(recipient_user_ids_json=json.dumps([OTHER])))
    await galaxy.offset_reaches(last)
    await galaxy.redis.xtrim(INTENTS, minid=(await galaxy.redis.get(OFFSET)).decode(), approximate=False)
    assert INTENTS not in await keys_with(galaxy, "canary")
    after = await galaxy.publish(intent(recipient_user_ids_json=json.dumps([OTHER])))
    await galaxy.routes(after, status="published")
    assert not program.events("stream_trimmed")


def message(person: str) -> dict[str, Any]:
    event_id = f"payment_{person}_1"
    return envelope(payload={"event_id": event_id, "user_id": person}, idempotency_key=event_id)


def of_billing(billing: Billing, code: int) -> Any:
    words = ["--json", "--config", str(billing.folder / "billing.toml")]
    return erase(*words, code=code, env=billing.environment(), cwd=billing.folder)


def test_billing_waits_for_a_message_that_waits_runs_or_is_put_off(billing: Billing) -> None:
    billing.start_subscription()  # It makes the tables, and works on other queues.
    billing.push(UPDATE, message(OTHER))
    billing.push(UPDATE, message(PERSON))
    waiting = of_billing(billing, 1)
    assert (waiting["finished"], waiting["unfinished"]) == (False, [UPDATE])
    assert waiting["outside"] == []
    # The neighbour is down: the message is tried and put off.
    billing.subscription_stub.default = Reply(503, body={"error": "down"})
    program = billing.start_payment(
        CARILLON_QUEUE__Q_PAY_SUBSCRIPTION_UPDATE__BASE_DELAY_SECONDS="300",
        CARILLON_QUEUE__Q_PAY_SUBSCRIPTION_UPDATE__MAX_DELAY_SECONDS="300",
    )
    billing.until(lambda: billing.redis.zcard(f"{UPDATE}:delayed") == 2, what="both are put off")
    assert of_billing(billing, 1)["unfinished"] == [UPDATE]
    program.terminate()
    assert program.wait() == 0
    # The neighbour is back; another process works, and the next that starts finishes what was begun.
    billing.subscription_stub.default = Reply()
    delayed: Any = billing.redis.zrange(f"{UPDATE}:delayed", 0, -1)
    for raw in delayed:
        billing.redis.zadd(f"{UPDATE}:delayed", {raw: 0})
    billing.start_payment()
    billing.until(lambda: not billing.waiting(UPDATE), what="nothing waits")
    assert billing.found("erasures")
    billing.start("--roles", "upkeep,payment", SUBSCRIPTION_SERVICE_URL=billing.subscription_stub.url)
    billing.until(lambda: not billing.found("erasures"), what="the erasure is finished by itself")
    assert of_billing(billing, 0)["finished"] is True
    waits = json.dumps(billing.waiting(*QUEUES))
    assert "canary" not in waits


def test_billing_forgets_what_failed_for_good(billing: Billing) -> None:
    billing.subscription_stub.default = Reply(503, body={"error": "down"})
    billing.start_payment(CARILLON_QUEUE__Q_PAY_SUBSCRIPTION_UPDATE__MAX_RETRIES="0")
    for person in (PERSON, OTHER):
        billing.push(UPDATE, message(person))
    billing.until(lambda: billing.redis.llen(f"{UPDATE}:failed") == 2, what="both failed")
    assert of_billing(billing, 0)["unfinished"] == []
    (kept,) = billing.redis.lrange(f"{UPDATE}:failed", 0, -1)
    assert OTHER in kept
