"""The producers' own module: every type built, published and delivered, and nothing done behind the caller's back."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from carillon.blueprints.galaxy import notificationintent as producing
from tests.support.galaxy import TYPES, payload_for
from tests.support.galaxy_seen import monitored
from tests.support.galaxy_stand import INTENTS, PASSWORD, Galaxy
from tests.support.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

Build = Callable[..., producing.NotificationIntent]
TWO_WAYS = "lobby.application.submitted"
BUILDERS: dict[str, Build] = {
    name: getattr(producing, name.replace(".", "_")) for name in TYPES if name != TWO_WAYS
} | {
    f"{TWO_WAYS} (private)": producing.lobby_application_submitted_private,
    f"{TWO_WAYS} (public)": producing.lobby_application_submitted_public,
}
PRODUCERS = {"geo": "geoprofile", "game": "game_master", "lobby": "game_lobby"}
ADMIN = {"geo.review_recommended", "game.generation_failed", "lobby.runtime_paused_after_start", f"{TWO_WAYS} (public)"}


def built(name: str, key: str) -> producing.NotificationIntent:
    metadata = producing.Metadata(idempotency_key=key, occurred_at_ms=1775121700000, request_id="r", trace_id="t")
    audience = () if name in ADMIN else (["user-1"],)
    return BUILDERS[name](metadata, *audience, **payload_for(name.partition(" ")[0]))


def client(port: int) -> redis.Redis:
    return redis.Redis(port=port, password=PASSWORD, retry=Retry(NoBackoff(), 0), socket_timeout=20)


@pytest.mark.req("S1-180", "S1-183", "S1-191")
@pytest.mark.parametrize("name", BUILDERS)
async def test_every_type_there_and_back(running: Galaxy, name: str) -> None:
    intent = built(name, f"sync {name}")
    with client(running.server.port) as connection:
        entry_id = await asyncio.to_thread(producing.publish, connection, intent)
    await running.routes(entry_id, status="published")
    (row,) = await running.rows("SELECT * FROM records WHERE notification_id = $1", entry_id)
    assert (row["notification_type"], row["idempotency_key"]) == (name.partition(" ")[0], f"sync {name}")
    assert row["producer"] == PRODUCERS[name.partition(".")[0]]
    assert (row["request_id"], row["trace_id"]) == ("r", "t")
    # The same again, by the asynchronous half, is the same intent.
    again = await producing.publish_async(running.redis, intent)
    await running.offset_reaches(again)
    assert not await running.rows("SELECT 1 FROM records WHERE notification_id = $1", again)
    assert not await running.rows("SELECT 1 FROM malformed_intents WHERE stream_entry_id = $1", again)


async def test_sixteen_constructors() -> None:
    assert len(BUILDERS) == 16


@pytest.mark.req("S1-181")
async def test_publishing_is_one_plain_xadd(running: Galaxy) -> None:
    intent = built("game.finished", "plain")
    async with monitored(running.redis) as commands:
        entry_id = await producing.publish_async(running.redis, intent)
        (added,) = await commands.until(["XADD", INTENTS])
        assert added[2:4] == ["*", "notification_type"]
        assert "MAXLEN" not in added
    assert await running.redis.xrange(INTENTS, entry_id, entry_id)


@pytest.mark.req("S1-181", "S1-182")
async def test_without_redis_there_is_one_error_at_once_or_none_at_all() -> None:
    intent = built("game.turn.ready", "nowhere")
    port = free_port()
    began = time.monotonic()
    with client(port) as nowhere:
        with pytest.raises(redis.ConnectionError):
            producing.publish(nowhere, intent)
        assert producing.publish_best_effort(nowhere, intent) is None
    away: Any = AsyncRedis(port=port, password=PASSWORD, retry=AsyncRetry(NoBackoff(), 0))
    async with away:
        with pytest.raises(redis.ConnectionError):
            await producing.publish_async(away, intent)
        assert await producing.publish_best_effort_async(away, intent) is None
    assert time.monotonic() - began < 20


@pytest.mark.req("S1-181", "S1-182")
async def test_a_refusal_of_redis_is_the_callers_to_see(running: Galaxy) -> None:
    await running.redis.set("taken", "no stream")
    intent = built("game.turn.ready", "taken")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await producing.publish_async(running.redis, intent, stream="taken")
    assert await producing.publish_best_effort_async(running.redis, intent, stream="taken") is None
    assert "must not undo" in str(producing.__doc__)


@pytest.mark.req("S1-180")
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"turn_number": -1}, "invalid_payload"),
        ({"game_id": ""}, "invalid_payload"),
        ({"recipient_user_ids": []}, "invalid_recipients"),
        ({"recipient_user_ids": ["u", "u"]}, "invalid_recipients"),
        ({"idempotency_key": ""}, "invalid_envelope"),
        ({"occurred_at_ms": 0}, "invalid_envelope"),
    ],
)
async def test_what_the_service_would_refuse_is_not_built(changes: dict[str, Any], code: str) -> None:
    given: dict[str, Any] = {"game_id": "g", "game_name": "n", "turn_number": 1, "recipient_user_ids": ["u"]}
    given |= {"idempotency_key": "k", "occurred_at_ms": 1} | changes
    metadata = producing.Metadata(
        idempotency_key=given.pop("idempotency_key"), occurred_at_ms=given.pop("occurred_at_ms")
    )
    with pytest.raises(producing.BadIntent) as refusal:
        producing.game_turn_ready(metadata, given.pop("recipient_user_ids"), **given)
    assert refusal.value.code == code
