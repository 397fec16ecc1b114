"""Game services publish through the producer module: every type is built, checked and appended with one XADD."""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from carillon.blueprints.galaxy import notificationintent as producer
from carillon.blueprints.galaxy.catalogue import read
from carillon.blueprints.galaxy.wire import GalaxyWire
from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent
from tests.support.galaxy import CATALOGUE, OCCURRED, USERS, WAYS, payload_for
from tests.support.ports import free_port
from tests.support.servers import Redis

META = producer.Metadata(idempotency_key="k-1", occurred_at_ms=OCCURRED, request_id="r-1", trace_id="t-1")
WIRE = GalaxyWire.open(CATALOGUE, {})
EVENT = "lobby.race_name.registration_eligible"


def constructed(name: str, kind: str, metadata: producer.Metadata = META) -> producer.NotificationIntent:
    """The type's own constructor, called with the type's required fields."""
    word = name.replace(".", "_")
    if len(CATALOGUE.types[name].audiences) > 1:
        word += "_private" if kind == "user" else "_public"
    constructor: Callable[..., producer.NotificationIntent] = getattr(producer, word)
    return constructor(metadata, *([USERS] if kind == "user" else []), **payload_for(name))


def without_retries(url: str, client: Any = redis.Redis) -> Any:
    return client.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=20, socket_connect_timeout=20)


@pytest.fixture
def streams(redis_url: str) -> Iterator[Any]:
    client = without_retries(redis_url)
    yield client
    client.close()


@pytest.mark.req("S1-180", "S1-183")
@pytest.mark.parametrize(("name", "kind"), WAYS)
def test_every_type_has_a_constructor_whose_output_is_accepted(name: str, kind: str, streams: Any) -> None:
    entry_id = producer.publish(streams, constructed(name, kind))
    ((stored_id, stored),) = streams.xrange("notification:intents")
    assert stored_id.decode() == entry_id
    intent = WIRE.decode(entry_id, {key.decode(): value.decode() for key, value in stored.items()})
    assert isinstance(intent, Intent)
    assert (intent.notification_type, intent.audience_kind) == (name, kind)
    assert intent.payload == payload_for(name)
    assert (intent.idempotency_key, intent.request_id, intent.trace_id) == ("k-1", "r-1", "t-1")


@pytest.mark.req("S1-180")
def test_there_are_sixteen_constructors() -> None:
    words = {name.replace(".", "_") for name, _ in WAYS}
    known = {name for name in producer.__all__ if name.removesuffix("_private").removesuffix("_public") in words}
    assert len(known) == 16


@pytest.mark.req("S1-87")
def test_a_race_name_may_be_registered_for_30_days() -> None:
    payload = {name: value for name, value in payload_for(EVENT).items() if name != "eligible_until_ms"}
    intent = producer.lobby_race_name_registration_eligible(META, ["u"], **payload)
    until = producer.thirty_days_after(OCCURRED)
    assert until - OCCURRED == 30 * 24 * 3600 * 1000
    assert f'"eligible_until_ms":{until}' in intent.fields["payload_json"]
    sooner = producer.lobby_race_name_registration_eligible(META, ["u"], **payload, eligible_until_ms=7)
    assert '"eligible_until_ms":7' in sooner.fields["payload_json"]


@pytest.mark.req("S1-88")
def test_the_module_says_when_race_names_are_spoken_of() -> None:
    for constructor in (producer.lobby_race_name_registration_eligible, producer.lobby_race_name_registration_denied):
        assert "`game_finished`" in (constructor.__doc__ or "")
    assert "capability evaluation" in (producer.lobby_race_name_registration_eligible.__doc__ or "")
    assert "successful `lobby.race_name.register` commit" in (producer.lobby_race_name_registered.__doc__ or "")


GAME: dict[str, Any] = {"game_id": "g", "game_name": "n", "turn_number": 1}
BROKEN: Any = object()


@pytest.mark.req("S1-180")
@pytest.mark.parametrize(
    ("metadata", "users", "payload", "code"),
    [
        (META, [], GAME, "invalid_recipients"),
        (META, ["u", "u"], GAME, "invalid_recipients"),
        (META, "user-1", GAME, "invalid_recipients"),
        (META, [7], GAME, "invalid_recipients"),
        (META, [BROKEN], GAME, "invalid_recipients"),
        (META, ["u"], GAME | {"turn_number": -1}, "invalid_payload"),
        (META, ["u"], GAME | {"turn_number": "1"}, "invalid_payload"),
        (META, ["u"], GAME | {"turn_number": float("nan")}, "invalid_payload"),
        (META, ["u"], GAME | {"game_id": ""}, "invalid_payload"),
        (META, ["u"], GAME | {"game_id": "\ud800"}, "invalid_payload"),
        (META, ["u"], GAME | {"game_name": BROKEN}, "invalid_payload"),
        (producer.Metadata(idempotency_key="", occurred_at_ms=1), ["u"], GAME, "invalid_envelope"),
        (producer.Metadata(idempotency_key="k", occurred_at_ms=0), ["u"], GAME, "invalid_envelope"),
        (producer.Metadata(idempotency_key=BROKEN, occurred_at_ms=1), ["u"], GAME, "invalid_envelope"),
        (producer.Metadata(idempotency_key="k", occurred_at_ms=1, trace_id="\x00"), ["u"], GAME, "invalid_envelope"),
    ],
)
def test_what_the_consumer_would_refuse_is_refused_here(metadata: Any, users: Any, payload: Any, code: str) -> None:
    with pytest.raises(BadIntent) as refused:
        producer.game_turn_ready(metadata, users, **payload)
    assert refused.value.code == code


def test_types_are_those_of_the_catalogue(tmp_path: Any) -> None:
    with pytest.raises(BadIntent, match=r"auth\.login_code is not in the catalogue"):
        producer.build("auth.login_code", META, {}, ["u"])
    file = tmp_path / "mine.toml"
    file.write_text('[types."a.b"]\nproducer = "p"\naudiences = { user = ["email"] }\nrequired = { x = "string" }\n')
    wire = GalaxyWire.open(read(file), {})
    assert producer.build("a.b", META, {"x": "y"}, ["u"], wire=wire).fields["producer"] == "p"
    with pytest.raises(BadIntent, match="x must be"):
        producer.build("a.b", META, {}, ["u"], wire=wire)


@pytest.mark.req("S1-181")
def test_publishing_is_one_plain_xadd(streams: Any, redis_url: str) -> None:
    intent = constructed("game.turn.ready", "user")
    watcher: Any = redis.Redis.from_url(redis_url)
    with watcher.monitor() as monitor:
        entry_id = producer.publish(streams, intent)
        watcher.echo("over")
        seen = []
        while "over" not in (said := monitor.next_command()["command"]):
            seen.append(said)
    watcher.close()
    (said,) = [line for line in seen if not line.startswith(("CLIENT", "HELLO"))]
    assert said.startswith("XADD notification:intents * notification_type game.turn.ready ")
    assert "MAXLEN" not in said
    assert "MINID" not in said
    assert streams.xlen("notification:intents") == 1
    assert entry_id.count("-") == 1


@pytest.mark.req("S1-181")
async def test_asynchronous_clients_publish_the_same(redis_url: str) -> None:
    intent = constructed("game.turn.ready", "user")
    async with without_retries(redis_url, redis.asyncio.Redis) as client:
        entry_id = await producer.publish_async(client, intent, stream="other:stream")
        ((stored_id, stored),) = await client.xrange("other:stream")
        assert await producer.publish_best_effort_async(client, intent) is not None
    assert stored_id.decode() == entry_id
    assert {key.decode(): value.decode() for key, value in stored.items()} == intent.fields


@pytest.mark.req("S1-181")
def test_a_redis_that_is_down_is_one_error_at_once() -> None:
    client = without_retries(f"redis://127.0.0.1:{free_port()}/0")
    began = time.monotonic()
    with pytest.raises(redis.ConnectionError):
        producer.publish(client, constructed("game.turn.ready", "user"))
    assert time.monotonic() - began < 15


@pytest.mark.req("S1-181")
def test_nothing_is_tried_twice() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    knocks = []

    def hang_up() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            knocks.append(connection)
            connection.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    client = without_retries(f"redis://127.0.0.1:{listener.getsockname()[1]}/0")
    with pytest.raises(redis.ConnectionError):
        producer.publish(client, constructed("game.turn.ready", "user"))
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(30)
    assert len(knocks) == 1


@pytest.mark.req("S1-182")
def test_best_effort_never_raises_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    intent = constructed("game.turn.ready", "user")
    dead = f"redis://127.0.0.1:{free_port()}/0"
    with caplog.at_level(logging.WARNING, "carillon.notificationintent"):
        assert producer.publish_best_effort(without_retries(dead), intent) is None
        client = without_retries(dead, redis.asyncio.Redis)
        assert asyncio.run(producer.publish_best_effort_async(client, intent)) is None
        assert producer.publish_best_effort(BROKEN, intent) is None
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert all(vars(record)["idempotency_key"] == "k-1" for record in caplog.records)


@pytest.mark.req("S1-182")
def test_best_effort_publishes_when_it_can(streams: Any, redis_server: Redis) -> None:
    entry_id = producer.publish_best_effort(streams, constructed("game.finished", "user"))
    assert entry_id is not None
    assert redis_server.execute("XLEN notification:intents") == ":1"
    streams.set("notification:intents", "no stream any more")
    assert producer.publish_best_effort(streams, constructed("game.finished", "user")) is None
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        producer.publish(streams, constructed("game.finished", "user"))


def test_type_checkers_take_the_usual_clients() -> None:
    sync: producer.StreamClient = redis.Redis()
    asynchronous: producer.AsyncStreamClient = redis.asyncio.Redis()
    assert callable(sync.xadd)
    assert callable(asynchronous.xadd)


def test_an_asynchronous_client_in_the_wrong_place_is_noticed() -> None:
    class Late:
        def xadd(self, _name: str, _fields: dict[Any, Any]) -> object:
            return object()

    with pytest.raises(TypeError, match="publish_async"):
        producer.publish(Late(), constructed("game.finished", "user"))
