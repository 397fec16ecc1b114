"""Hostile messages to running programs, through RabbitMQ, Service Bus, Redis streams, Redis lists and Kafka."""

import asyncio
import json
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import Any, Self

from proton import Message, symbol

from carillon.blueprints.billing import domain as billing
from carillon.blueprints.push_worker import wire as push_wire
from carillon.domain import jobs
from carillon.domain.intents import Intent
from tests.fuzz import honest, parsers
from tests.fuzz.mutation import Mutator
from tests.fuzz.requests import log_errors
from tests.fuzz.running import LIMIT_SECONDS, Finding, Row, resident_kib
from tests.support import tables
from tests.support.client import Client
from tests.support.every_blueprint import EVERY, PATIENCE, Blueprint, World
from tests.support.galaxy_stand import INTENTS
from tests.support.local_doors import DOORS, QUEUE
from tests.support.process import Program
from tests.support.raw_texts import RawProducer, RawText

CHUNK = 500
LONGEST = 20_000
MOST_GROWTH_KIB = 128 * 1024
SAMPLE_SECONDS = 0.02
LISTS = (
    billing.PAYMENT_INITIATION,
    billing.TRIAL_PAYMENT,
    billing.PLAN_CHANGE,
    billing.USAGE_SYNC,
    billing.SUBSCRIPTION_UPDATE,
    billing.REFUND_INITIATION,
)


class Way(ABC):
    """How messages reach one blueprint, which of them it may read, and how many it has taken for good."""

    seeds: tuple[bytes, ...]

    def __init__(self, blueprint: Blueprint, random: Random) -> None:
        self.blueprint = blueprint
        self.world = blueprint.world
        self.random = random

    @abstractmethod
    def send(self, bodies: list[bytes]) -> int:
        """Hand them to the broker; how many were handed over."""

    @abstractmethod
    def readable(self, body: bytes) -> bool:
        """Whether the blueprint's reader takes it for an intent."""

    @abstractmethod
    def taken(self) -> int:
        """Notifications, messages or rows that came of messages so far."""

    def most(self, readable: int) -> int:
        """How many may be taken of a chunk with so many readable messages; the good one behind them is one more."""
        return readable + 1

    def number(self, statement: str) -> int:
        return asyncio.run(tables.number(self.blueprint.own, statement))

    def strange(self) -> bytes:
        """A text that a header or an id may be."""
        return self.random.choice((b"ok", b"\xff\xfe", b"\xed\xa0\x80", b"a\nb", b"", b"x" * 100, b"\xc3\xa9"))


class RabbitMQPush(Way):
    """The queue of push-worker, with strange properties."""

    seeds = (honest.PUSH,)

    def send(self, bodies: list[bytes]) -> int:
        self.world.broker.declare("push.queue")
        return self._publish("push.queue", bodies)

    def _publish(self, queue: str, bodies: list[bytes]) -> int:
        plain = [body for body in bodies if self.random.random() < 0.9]
        self.world.broker.publish(*plain, queue=queue)
        for body in bodies[len(plain) :]:
            properties: dict[str, Any] = {
                "message_id": RawText(self.strange()),
                "content_type": RawText(self.strange()),
                "headers": {RawText(self.strange()): 1},
            }
            for name in self.random.sample(sorted(properties), self.random.randrange(3)):
                del properties[name]
            self.world.broker.publish_with(body, queue=queue, **properties)
        return len(bodies)

    def readable(self, body: bytes) -> bool:
        return isinstance(push_wire.decode(body), Intent)

    def taken(self) -> int:
        return len(self.world.fcm.entries)


class RabbitMQDoor(RabbitMQPush):
    """The door of the blueprint local."""

    seeds = (honest.QUEUED,)

    def send(self, bodies: list[bytes]) -> int:
        # The door declares its queue a moment after the program is ready.
        self.world.broker.declare(QUEUE)
        return self._publish(QUEUE, bodies)

    def readable(self, body: bytes) -> bool:
        return isinstance(parsers._rabbit(b"key\n" + body), Intent)  # noqa: SLF001 - the same reader in the same process

    def taken(self) -> int:
        return self.number("SELECT count(*) AS n FROM records")


class ServiceBusQueue(Way):
    """The same through Service Bus: ids, properties and bodies of every type that AMQP 1.0 has for them."""

    seeds = (honest.QUEUED,)

    def send(self, bodies: list[bytes]) -> int:
        self.world.bus.create(QUEUE)
        self.world.bus.publish(QUEUE, *map(self._message, bodies))
        return len(bodies)

    def _message(self, body: bytes) -> Message:
        if self.random.random() < 0.9:
            return Message(body=body, inferred=True)
        strange = self.strange().decode("utf-8", "replace")
        value: Any = self.random.choice((body, strange, [strange, 1, None], {strange: body}, 7, None))
        named = self.random.choice(("idempotency-key", "traceparent", "accept-language", strange))
        return Message(
            body=value,
            inferred=self.random.random() < 0.5,
            id=self.random.choice((strange, uuid.UUID(int=self.random.getrandbits(128)), 7, None)),
            correlation_id=self.random.choice((strange, uuid.UUID(int=7), 2**40, None)),
            properties={named: self.random.choice((strange, 1.5, True, None, symbol("s"), self.strange()))},
        )

    def readable(self, body: bytes) -> bool:
        return isinstance(parsers._servicebus(b"key\n" + body), Intent)  # noqa: SLF001 - the same reader in the same process

    def taken(self) -> int:
        return self.number("SELECT count(*) AS n FROM records")


class RedisStream(Way):
    """The stream of galaxy."""

    seeds = honest.GALAXY

    def send(self, bodies: list[bytes]) -> int:
        pipe = self.world.redis.pipeline(transaction=False)
        for body in bodies:
            pipe.execute_command("XADD", INTENTS, "*", *(part for pair in self._fields(body) for part in pair))
        pipe.execute()
        return len(bodies)

    def _fields(self, body: bytes) -> list[tuple[bytes, bytes]]:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and value:
            return [
                (name.encode("utf-8", "surrogatepass"), _as_text(held).encode("utf-8", "surrogatepass"))
                for name, held in value.items()
            ]
        parts = body.split(b",")
        return list(zip(parts[::2], parts[1::2], strict=False)) or [(b"x", body)]

    def readable(self, body: bytes) -> bool:
        fields = {name.decode("utf-8", "replace"): held.decode("utf-8", "replace") for name, held in self._fields(body)}
        return isinstance(parsers.GALAXY.decode("1-1", fields), Intent)

    def taken(self) -> int:
        return self.number("SELECT count(*) AS n FROM notification.records")


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class RedisLists(Way):
    """The queues of billing, whose handlers find nothing to do for any of these."""

    seeds = (
        honest.JOB,
        b'{"subscription_id":"s","payment_id":"p","amount":9.99,"plan_id":"basic","user_id":"u"}',
        b'{"id":"1","action":"renew","payload":{"subscription_id":"s","new_plan_id":"pro","user_id":"u"}}',
    )

    def send(self, bodies: list[bytes]) -> int:
        # Copies with one id run one after the other, a second apart: nearly all of these get an id of their own.
        own = [body.replace(b'"id":"1"', b'"id":"%d"' % self.random.getrandbits(60)) for body in bodies]
        copies = [body for body in dict.fromkeys(bodies) if self.random.random() < 0.01]
        different = [*dict.fromkeys(own), *copies]
        for place, queue in enumerate(LISTS):
            mine = different[place :: len(LISTS)]
            if mine:
                self.world.redis.lpush(queue, *mine)
        ends = time.monotonic() + PATIENCE
        while sum(self.world.redis.llen(queue) for queue in LISTS):
            if time.monotonic() > ends:
                raise TimeoutError(f"the queues are not empty after {PATIENCE} s")
            time.sleep(SAMPLE_SECONDS)
        return len(different)

    def readable(self, body: bytes) -> bool:
        return jobs.read_message(body, jobs.message_id(body), "act") is not None

    def most(self, readable: int) -> int:
        # No subscription has the names in these, and the good one is not counted.
        del readable
        return 0

    def taken(self) -> int:
        # The good ones of this run are trials of people with these names.
        return self.number("SELECT count(*) AS n FROM subscriptions WHERE user_id NOT LIKE 'user-%'")


class KafkaTopic(Way):
    """The topic of sse, with strange headers."""

    seeds = (honest.EVENT,)
    _producer: RawProducer | None = None

    def send(self, bodies: list[bytes]) -> int:
        self._producer = self._producer or RawProducer(self.world.topic)
        self._producer.write(
            *((body, [(self.strange(), self.strange())] if self.random.random() < 0.2 else []) for body in bodies)
        )
        return len(bodies)

    def readable(self, body: bytes) -> bool:
        return isinstance(parsers._kafka(b"\n" + body), Intent)  # noqa: SLF001 - the same reader in the same process

    def taken(self) -> int:
        return self.number("SELECT count(*) AS n FROM notifications.notifications")


class Listener:
    """Asks a program whether it lives, again and again, and remembers the slowest answer."""

    def __init__(self, program: Program) -> None:
        self._client = Client.of(program)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.slowest = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            began = time.monotonic()
            try:
                self._client.get("/healthz")
            except OSError:
                self.slowest = max(self.slowest, LIMIT_SECONDS * 10)
            self.slowest = max(self.slowest, time.monotonic() - began)


WAYS: dict[str, tuple[str, type[Way]]] = {
    "rabbitmq push-worker": ("push-worker", RabbitMQPush),
    "rabbitmq local": ("local by rabbitmq", RabbitMQDoor),
    "servicebus local": ("local by servicebus", ServiceBusQueue),
    "redis stream galaxy": ("galaxy", RedisStream),
    "redis lists billing": ("billing", RedisLists),
    "kafka sse": ("sse", KafkaTopic),
}


def opened(name: str, world: World) -> Blueprint:
    """The blueprint that messages reach this way."""
    return {**EVERY, **DOORS}[WAYS[name][0]](world)


class Delivery:
    """Hostile messages for one running program, in chunks; behind each chunk a good message has to arrive."""

    def __init__(self, name: str, way: Way, program: Program, seed: int) -> None:
        self._way = way
        self._program = program
        self._seed = seed
        self._mutator = Mutator(way.random, way.seeds)
        self.row = Row(name=name, stored=0)
        self.findings: list[Finding] = []

    def run(self, number: int, seconds: float) -> None:
        ends = time.monotonic() + seconds
        self._chunk(min(CHUNK, number))
        before = resident_kib(self._program.pid)
        while self.row.tried < number and time.monotonic() < ends and not self.findings:
            self._chunk(min(CHUNK, number - self.row.tried))
        self.row.grown_kib = max(0, resident_kib(self._program.pid) - before)
        if self.row.grown_kib > MOST_GROWTH_KIB:
            self._found([], f"the program grew by {self.row.grown_kib // 1024} MiB")
        errors = log_errors(self._program)
        if errors:
            self._found([], f"the log says {errors[0]}")
        self.row.found = len(self.findings)

    def _chunk(self, number: int) -> None:
        bodies = [self._mutator.next()[:LONGEST] for _ in range(number)]
        readable, tried = sum(map(self._way.readable, bodies)), self.row.tried
        before, slowest, sent = self._way.taken(), self._feed(bodies), self.row.tried - tried
        self.row.count("readable", min(sent, readable))
        self.row.count("unreadable", max(0, sent - readable))
        # As with requests: a busy machine makes anything late once.
        again, best = 0, slowest
        while best > LIMIT_SECONDS and again < 2 and not self.findings:
            best, again = min(best, self._feed(bodies)), again + 1
        self.row.slowest_seconds = max(self.row.slowest_seconds, slowest)
        self.row.late += best <= LIMIT_SECONDS < slowest
        if best > LIMIT_SECONDS:
            self._found(bodies, f"the program did not answer for {best:.1f} s, again and again")
        too_many = self._way.taken() - before - self._way.most(readable) * (again + 1)
        if too_many > 0:
            self.row.stored = (self.row.stored or 0) + too_many
            self._found(bodies, f"{too_many} more were taken than could be read")

    def _feed(self, bodies: list[bytes]) -> float:
        blueprint = self._way.blueprint
        with Listener(self._program) as listener:
            try:
                self.row.tried += self._way.send(bodies)
                blueprint.until_arrived(blueprint.give(self._program))
            except TimeoutError as error:
                self._found(bodies, f"a good one behind the bad ones: {error}")
        if self._program.has_ended:
            self._found(bodies, f"the program ended: {self._program.tail()}")
        return listener.slowest

    def _found(self, bodies: list[bytes], error: str) -> None:
        self.findings.append(Finding(self.row.name.replace(" ", "."), self._seed, b"\n----\n".join(bodies), error))


def run(
    name: str, blueprint: Blueprint, seed: int, *, number: int, seconds: float, say: Callable[[str], None]
) -> tuple[Row, list[Finding]]:
    """One broker's way into one blueprint."""
    way = WAYS[name][1](blueprint, Random(f"{name}/{seed}"))
    program = blueprint.start(CARILLON_LOG__LEVEL="error")
    delivery = Delivery(name, way, program, seed)
    delivery.run(number, seconds)
    program.close()
    say(f"{name:28} {delivery.row.tried:9,} messages, {len(delivery.findings)} found")
    for found in delivery.findings[:3]:
        say(f"  {found.error[:300]}")
    return delivery.row, delivery.findings
