"""The RabbitMQ door of a real process on a real broker: keys, poison, deaths, cancels and outages."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import tables
from tests.support.process import Program
from tests.support.proxy import FaultProxy
from tests.support.rabbitmq import RabbitMQ
from tests.support.rabbitmq_queue import BODY, Queue, queue
from tests.support.raw_texts import RawText
from tests.support.stream_door import becomes
from tests.support.waiting import until

pytestmark = pytest.mark.slow

RECORDS = "SELECT count(*) AS n FROM records"
PARKED = "SELECT * FROM malformed_intents ORDER BY recorded_at, stream_entry_id"


class Home:
    """A ledger and the processes that read one queue into it."""

    def __init__(self, folder: Path, url: str, name: str, ledger: str = "") -> None:
        self.ledger = ledger or f"sqlite:///{folder}/ledger.db"
        self._folder = folder
        self.environment = {
            "RABBITMQ_URL": url,
            "DATABASE_URL": self.ledger,
            "CARILLON_RABBITMQ_DOOR__QUEUE": name,
            "CARILLON_LEDGER__ALLOW_UNSAFE": "1",
            "CARILLON_HTTP__PORT": "0",
        }
        self.programs: list[Program] = []

    def launch(self, **more: str) -> Program:
        roles = ("--roles", "doors")
        self.programs.append(Program("serve", *roles, env={**self.environment, **more}, cwd=self._folder))
        return self.programs[-1]

    async def start(self, **more: str) -> Program:
        program = self.launch(**more)
        await reading(program)
        return program

    async def until_written(self, many: int, within: float = 40.0) -> None:
        async def written() -> bool:
            return await tables.number(self.ledger, RECORDS) >= many

        await until(written, timeout=within, what=f"{many} notifications")
        assert await tables.number(self.ledger, RECORDS) == many

    async def until_malformed(self, many: int) -> list[tables.Row]:
        async def enough() -> bool:
            return len(await tables.read(self.ledger, PARKED)) >= many

        await until(enough, timeout=40, what=f"{many} malformed intents")
        return await tables.read(self.ledger, PARKED)


async def reading(program: Program, since: int = 0) -> None:
    await program.until("part_started", lambda line: line["part"] == "rabbitmq_door", timeout=40, since=since)


async def until_empty(requests: Queue) -> None:
    """Nothing ready, and nothing that comes back when its reader leaves."""

    async def empty() -> bool:
        return await requests.ready() == 0

    await until(empty, timeout=40, what="an empty queue")


async def left_over(requests: Queue, program: Program) -> int:
    """What the process had not acknowledged, seen after its orderly end."""
    program.terminate()
    assert await asyncio.to_thread(program.wait, 60) == 0

    async def alone() -> bool:
        return await requests.consumers() == 0

    await until(alone, timeout=40, what="no consumer")
    return await requests.ready()


@pytest.fixture
async def requests(rabbitmq: RabbitMQ) -> AsyncIterator[Queue]:
    async with queue(rabbitmq.url) as found:
        yield found
        await found.delete()


@pytest.fixture
def home(rabbitmq: RabbitMQ, requests: Queue, tmp_path: Path) -> Iterator[Home]:
    found = Home(tmp_path, rabbitmq.url, requests.name)
    yield found
    for program in found.programs:
        program.close()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_requests_are_written_down_and_acknowledged(home: Home, requests: Queue, kind: str) -> None:
    await requests.make(kind)
    program = await home.start()
    for place in range(300):
        await requests.publish({**BODY, "recipient": f"device-{place}"}, f"key-{place}")
    await home.until_written(300)
    rows = await tables.read(home.ledger, "SELECT producer, idempotency_key FROM records")
    assert {(row["producer"], row["idempotency_key"]) for row in rows} == {
        ("system", f"key-{place}") for place in range(300)
    }
    await until_empty(requests)
    program.terminate()
    assert await asyncio.to_thread(program.wait, 60) == 0
    assert await requests.ready() == 0


async def test_a_queue_that_is_not_there_is_made(home: Home, requests: Queue) -> None:
    await home.start(CARILLON_RABBITMQ_DOOR__QUEUE_TYPE="quorum")
    await requests.publish(BODY, "key")
    await home.until_written(1)
    # Declaring it otherwise would be refused.
    await requests.make("quorum")


async def test_what_the_properties_say(home: Home, requests: Queue) -> None:
    await requests.make()
    await home.start()
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers: dict[str, Any] = {"idempotency-key": "said", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    await requests.publish(BODY, "made", headers=headers, correlation_id="order-7")
    await home.until_written(1)
    (row,) = await tables.read(home.ledger, "SELECT * FROM records")
    assert (row["idempotency_key"], row["trace_id"], row["request_id"]) == ("said", trace, "order-7")


async def test_the_same_key_many_times_is_one_notification(home: Home, requests: Queue) -> None:
    await requests.make()
    program = await home.start()
    for _ in range(50):
        await requests.publish(BODY, "key")
    await requests.publish({**BODY, "recipient": "device-2"}, "last")
    await home.until_written(2)
    await until_empty(requests)

    # The last one's line is written behind its acknowledgement, and read by a thread of ours.
    async def told() -> bool:
        return len(program.events("intent_accepted")) >= 2

    await until(told, timeout=40, what="two that were accepted")
    assert len(program.events("intent_accepted")) == 2


POISON: list[tuple[bytes, str]] = [
    (b"not json", "VALIDATION_ERROR"),
    (b"\xff\xfe", "VALIDATION_ERROR"),
    (b"[]", "VALIDATION_ERROR"),
    (json.dumps({**BODY, "colour": "red"}).encode(), "VALIDATION_ERROR"),
    (json.dumps({**BODY, "synchronous": True}).encode(), "SYNCHRONOUS_UNAVAILABLE"),
    (json.dumps({**BODY, "templateKey": "no-such-template"}).encode(), "TEMPLATE_NOT_FOUND"),
    (json.dumps({**BODY, "recipient": None, "userId": None}).encode(), "RECIPIENT_UNRESOLVED"),
    (json.dumps({**BODY, "data": {"name": "x" * 300_000}}).encode(), "PAYLOAD_TOO_LARGE"),
    (b"[" * 10_000, "VALIDATION_ERROR"),
]


async def test_malformed_messages_are_kept_and_stop_nobody(home: Home, requests: Queue) -> None:
    await requests.make("quorum")
    await home.start()
    for place, (body, _) in enumerate(POISON):
        await requests.publish(body, f"poison-{place}")
    await requests.publish(BODY, "a key\nof two lines")
    await requests.publish(BODY, "good")
    rows = await home.until_malformed(len(POISON) + 1)
    codes = {row["idempotency_key"]: row["failure_code"] for row in rows}
    assert codes == {
        **{f"poison-{place}": code for place, (_, code) in enumerate(POISON)},
        "a key\nof two lines": "VALIDATION_ERROR",
    }
    kept = json.loads(next(row["raw_fields"] for row in rows if row["idempotency_key"] == "poison-0"))
    assert (kept["body"], kept["bytes"], kept["message_id"]) == ("not json", 8, "poison-0")
    await home.until_written(1)
    assert await left_over(requests, home.programs[0]) == 0


async def test_properties_that_are_no_text_stop_nobody(home: Home, requests: Queue) -> None:
    """A broker passes on ids, names and routing keys that are no UTF-8; a client that gives up reads nothing more."""
    await requests.make()
    await home.start()
    await requests.publish(BODY, RawText(b"\xff\xfe"))
    await requests.publish({**BODY, "recipient": "device-2"}, RawText(b"\xfe\xff"))
    await requests.publish({**BODY, "recipient": "device-3"}, "named", content_type=RawText(b"\xff"))
    await requests.publish_around({**BODY, "recipient": "device-4"}, "around", RawText(b"\xff"))
    headers: dict[str, Any] = {RawText(b"\xff"): "a", "idempotency-key": "lost"}
    await requests.publish({**BODY, "recipient": "device-5"}, "unread", headers=headers)
    await requests.publish({**BODY, "recipient": "device-6"}, "good")
    await home.until_written(5)
    rows = await tables.read(home.ledger, "SELECT idempotency_key FROM records")
    assert {row["idempotency_key"] for row in rows} == {r"\xff\xfe", r"\xfe\xff", "named", "around", "good"}
    # One of the headers may have been the key: sending it without one could send it twice.
    (kept,) = await home.until_malformed(1)
    assert (kept["failure_code"], kept["idempotency_key"]) == ("VALIDATION_ERROR", "unread")
    assert "headers are not readable" in kept["failure_message"]
    assert await left_over(requests, home.programs[0]) == 0


async def test_a_key_used_for_other_content_is_kept_as_malformed(home: Home, requests: Queue) -> None:
    await requests.make()
    await home.start()
    await requests.publish(BODY, "key")
    await home.until_written(1)
    await requests.publish({**BODY, "recipient": "device-2"}, "key")
    (row,) = await home.until_malformed(1)
    assert row["failure_code"] == "IDEMPOTENCY_CONFLICT"


@pytest.mark.req("G-04")
async def test_death_between_commit_and_acknowledgement_is_one_notification(home: Home, requests: Queue) -> None:
    await requests.make("quorum")
    for place in range(20):
        await requests.publish({**BODY, "recipient": f"device-{place}"}, f"key-{place}")
    for hit in (1, 2):
        program = home.launch(CARILLON_FAULTPOINTS=f"after_accept_commit=exit9@{hit}")
        assert await asyncio.to_thread(program.wait, 60) == -9

    async def given_back() -> bool:
        held = await requests.consumers()
        return held == 0 and await requests.ready() + await tables.number(home.ledger, RECORDS) > 20

    await until(given_back, timeout=30, what="what is committed and not acknowledged, back in the queue")
    waiting = await requests.ready()
    heir = await home.start()
    seen = ("intent_repeated", "intent_accepted")
    await becomes(lambda: sum(len(heir.events(word)) for word in seen) == waiting, "all deliveries again", seconds=40)
    assert heir.events("intent_repeated")
    await home.until_written(20)
    assert await left_over(requests, home.programs[-1]) == 0
    assert await tables.read(home.ledger, PARKED) == []


async def test_a_deleted_and_remade_queue_is_subscribed_again(home: Home, requests: Queue) -> None:
    await requests.make("classic")
    program = await home.start()
    before = program.mark()
    await requests.delete()
    await requests.make("quorum")
    await reading(program, since=before)
    await requests.publish(BODY, "key")
    await home.until_written(1)
    assert [line["error"] for line in program.events("trouble") if "cancelled the consumer" in line["error"]]


async def test_broken_connections_lose_and_double_nothing(rabbitmq: RabbitMQ, requests: Queue, tmp_path: Path) -> None:
    await requests.make("quorum")
    async with FaultProxy("127.0.0.1", rabbitmq.port) as proxy:
        home = Home(tmp_path, f"amqp://guest:guest@{proxy.address}/", requests.name)
        program = await home.start(CARILLON_RABBITMQ_DOOR__PREFETCH="10")
        for turn in range(3):
            before = program.mark()
            for place in range(100):
                await requests.publish({**BODY, "recipient": f"device-{place}"}, f"key-{turn}-{place}")
            proxy.reset()
            await reading(program, since=before)
        await home.until_written(300)
        await until_empty(requests)
        assert await left_over(requests, program) == 0


async def test_a_restarted_broker_is_read_on(rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    async with queue(rabbitmq.url) as requests:
        await requests.make("classic")
        home = Home(tmp_path, rabbitmq.url, requests.name)
        program = await home.start()
        await requests.publish(BODY, "before")
        await home.until_written(1)
    before = program.mark()
    await asyncio.to_thread(rabbitmq.leave)
    await program.until("trouble", lambda line: line["where"] == "rabbitmq_door", since=before)
    await asyncio.to_thread(rabbitmq.come_back)
    async with queue(rabbitmq.url, requests.name) as requests:
        await reading(program, since=before)
        await requests.publish({**BODY, "recipient": "device-2"}, "after")
        await home.until_written(2)
        waits = [line["retry_in_seconds"] for line in program.events("trouble") if line["where"] == "rabbitmq_door"]
        assert max(waits) <= 5
        program.terminate()
        assert await asyncio.to_thread(program.wait, 60) == 0
        await requests.delete()


@pytest.mark.req("P-103", "P-117")
async def test_what_an_email_carries_and_where_text_messages_go(home: Home, requests: Queue) -> None:
    """The rules of the intake hold at this door as they do over HTTP."""
    await requests.make()
    await home.start(CARILLON_SMS__COUNTRIES="DE")
    mail = {**BODY, "channel": "email", "recipient": "ada@example.org", "cc": ["boss@example.org"]}
    file = {"filename": "a.pdf", "contentType": "application/pdf", "content": "aGk="}
    await requests.publish({**mail, "attachments": [file]}, "good")
    await requests.publish({**mail, "headers": {"Bcc": "x@example.org"}}, "bad header")
    await requests.publish({**BODY, "channel": "sms", "recipient": "+14155550100"}, "abroad")
    malformed = await home.until_malformed(2)
    assert {row["failure_code"].upper() for row in malformed} == {"VALIDATION_ERROR", "COUNTRY_NOT_ALLOWED"}
    await home.until_written(1)
    (row,) = await tables.read(home.ledger, "SELECT message_json FROM routes")
    assert json.loads(row["message_json"])["mail"]["attachments"] == [file]
