"""What reads text of strangers inside one process: each target takes bytes, and only a refusal may come of them."""

import json
import random
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

from azure.servicebus.amqp import AmqpMessageBodyType

from carillon import amqp
from carillon.blueprints.galaxy import wire as galaxy_wire
from carillon.blueprints.push_worker import wire as push_wire
from carillon.blueprints.sse.wire import EventWire, StreamWire
from carillon.border import clean_json, json_elements, strict_loads
from carillon.domain import addresses, jobs
from carillon.domain.errors import BadIntent, BadTemplate
from carillon.domain.intents import Intent, Malformed
from carillon.domain.notifications import Template
from carillon.doors.http.wire import SendBody, idempotency_key
from carillon.doors.kafka.wire import Record, TopicWire
from carillon.doors.messages import QueueWire
from carillon.doors.rabbitmq.door import seen
from carillon.doors.redis_stream.offset import parse_id
from carillon.doors.servicebus.door import seen as seen_on_the_bus
from carillon.intake.render import check_template, render_message
from carillon.live import endpoints as streams
from carillon.providers.echoes import without
from carillon.providers.egress import Rules, check_url
from carillon.providers.http import parse_retry_after
from carillon.providers.mail import parse_mailbox, parse_sender
from carillon.upkeep.logs.redaction import Redaction
from carillon.web.problems import Problem
from carillon.web.request import convert, trace_of
from tests.fuzz import honest, vendors
from tests.fuzz.jinja_templates import hostile, outcome
from tests.fuzz.running import READ, REFUSED, Target
from tests.fuzz.stores import arrived, storable

MOST_BYTES = 256 * 1024
EVENTS = EventWire({"*": "LOW"}, lambda: "id")
TOPIC = TopicWire(EVENTS.decode, MOST_BYTES)
QUEUE = QueueWire("rabbitmq", "q", MOST_BYTES, lambda: "id")
BUS = QueueWire("servicebus", "q", MOST_BYTES, lambda: "id")
GALAXY = galaxy_wire.open_wire(None, {})
REDACTION = Redaction(["a-configured-secret"])


def text(body: bytes) -> str:
    return body.decode("utf-8", "surrogateescape")


def _strict(body: bytes) -> None:
    storable(strict_loads(body))


def _elements(body: bytes) -> str:
    cleaned = clean_json(body)
    if clean_json(cleaned) != cleaned:
        raise AssertionError("cleaning twice differs from cleaning once")
    return READ if json_elements(body) is not None else REFUSED


def _rendered(body: bytes) -> None:
    before, _, rest = text(body).partition("\n")
    check_template(before)
    rich = f'<a href="{before}">{before}</a>'
    template = Template(code="t", channel="email", locale="en", text=before, subject="{{a}}", html=rich)
    message = render_message(template, {"a": rest}, "empty")
    if 'href="javascript:' in (message.html or "").lower() and "javascript:" not in before.lower():
        raise AssertionError("a value made a link that runs a script")
    if "\n" in (message.subject or "") or "\r" in (message.subject or ""):
        raise AssertionError("a subject has two lines")


def _jinja(body: bytes) -> str:
    """The bytes choose which pieces of the grammar make up a template, and are themselves a template."""
    hostile_text = hostile(random.Random(body))
    for one in (hostile_text, text(body).encode("utf-8", "replace").decode()[:2000]):
        said = outcome(one)
    return READ if said == "rendered" else REFUSED


def _address(body: bytes) -> str:
    said = text(body)
    unfit = [addresses.unfit(channel, said) for channel in ("email", "sms", "push", "webhook", "inApp")]
    check_url(said, Rules())
    for read in (parse_mailbox, parse_sender):
        try:
            read(said)
        except ValueError:
            continue
    return REFUSED if all(unfit) else READ


def _words(body: bytes) -> None:
    """Single values out of heads."""
    said = text(body)
    trace_of(body)
    parse_id(said)
    parse_retry_after(said, 0.0)
    idempotency_key(said, None)


def _resume(body: bytes) -> None:
    """A reader's last event id, in the header and in the query."""
    said = body.decode("latin-1")
    for header, named in ((said, ""), ("", said)):
        request = SimpleNamespace(header=lambda _, header=header: header)
        found = streams._resume(cast("Any", request), named)  # noqa: SLF001 - the reader of the id alone
        if found is not None and not 0 <= found < 2**63:
            raise AssertionError(f"{found} is no id of a store")


def _job(body: bytes) -> str:
    name = jobs.message_id(body)
    found = jobs.read_message(body, name, "act")
    if found is None:
        return REFUSED
    storable(name.replace("\x00", ""))
    again = jobs.with_attempts(body, 3)
    if jobs.read_message(again, name, "act") is None:
        raise AssertionError("a message that was read cannot be read after a retry")
    jobs.age_seconds(found.created_at, 0.0)
    return READ


def as_fields(body: bytes) -> dict[str, str]:
    """An entry of a Redis stream: the members of a JSON object, or the bytes split at their commas."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return {str(name): held if isinstance(held, str) else json.dumps(held) for name, held in value.items()}
    parts = body.decode("utf-8", "replace").split(",")
    return dict(zip(parts[::2], parts[1::2], strict=False))


def _kafka(body: bytes) -> Intent | Malformed:
    head, mark, rest = body.partition(b"\n")
    headers = (("traceparent", head), (head.decode("utf-8", "replace"), None)) if mark else ()
    return TOPIC.arrival(Record("t", 0, 1, head or None, rest if mark else body, headers, 1)).read


def _rabbit(body: bytes) -> Intent | Malformed:
    """The id, a header's name and its value are read by the client's readers, as a broker passes them on."""
    head, _, rest = body.partition(b"\n")
    _, name = amqp.read_short_text(bytes([len(head[:255])]) + head[:255])
    field = bytes([len(head[:99])]) + head[:99] + b"S" + len(head).to_bytes(4, "big") + head
    key = b"\x0fidempotency-keyS" + len(head[:40]).to_bytes(4, "big") + head[:40]
    inner = field + key if head[:1] < b"a" else key
    _, headers = amqp.read_table(len(inner).to_bytes(4, "big") + inner)
    message = SimpleNamespace(body=rest or body, headers=headers, message_id=name, correlation_id=name[:9])
    return QUEUE.read(seen(cast("Any", message)))


def _servicebus(body: bytes) -> Intent | Malformed:
    """The first byte chooses the kinds of the body and of the ids: AMQP 1.0 has several for each."""
    head, _, rest = body.partition(b"\n")
    said, choice = rest or body, sum(head[:1])
    words = text(head).encode("utf-8", "replace").decode()
    name: object = (head, words, choice, uuid.UUID(int=choice), None)[choice % 5]
    kinds: tuple[tuple[AmqpMessageBodyType, object], ...] = (
        (AmqpMessageBodyType.DATA, iter([said[:7], said[7:]])),
        (AmqpMessageBodyType.VALUE, said),
        (AmqpMessageBodyType.VALUE, text(said).encode("utf-8", "replace").decode()),
        (AmqpMessageBodyType.VALUE, {name: said}),
        (AmqpMessageBodyType.SEQUENCE, [[said, name]]),
    )
    kind, held = kinds[0] if head[:1].isalpha() else kinds[choice % 5]
    message = SimpleNamespace(
        raw_amqp_message=SimpleNamespace(
            properties=SimpleNamespace(message_id=name, correlation_id=head[:9]) if choice % 7 else None,
            application_properties={b"idempotency-key": name, head: words} if choice % 3 else None,
        ),
        body=held,
        body_type=kind,
        sequence_number=choice or None,
        enqueued_time_utc=datetime.fromtimestamp(choice, UTC) if choice % 2 else None,
    )
    return BUS.read(seen_on_the_bus(cast("Any", message), "q"))


def _doors() -> dict[str, Target]:
    return {
        "border.strict": Target(_strict, (honest.SEND, honest.EVENT, b'[1,2.5e3,"\\u00e9",null]'), (BadIntent,)),
        "border.elements": Target(
            _elements, (b"[" + honest.SEND + b"," + honest.EVENT + b"]", b'["\\ud83d\\ude00","\\\\u0000"]')
        ),
        "door.http": Target(lambda b: convert(strict_loads(b), SendBody), (honest.SEND,), (BadIntent, Problem)),
        "door.kafka": Target(arrived(_kafka), (honest.EVENT, honest.TRACE + b"\n" + honest.EVENT)),
        "door.redis_stream": Target(
            arrived(lambda b: StreamWire(EVENTS).decode("1-1", {"event": text(b)})), (honest.EVENT,)
        ),
        "door.rabbitmq": Target(
            arrived(_rabbit), (b"key-1\n" + honest.SEND, b"Key\n" + honest.QUEUED, honest.TRACE + b"\n" + honest.SEND)
        ),
        "door.servicebus": Target(
            arrived(_servicebus),
            (b"key-1\n" + honest.SEND, b"Key\n" + honest.QUEUED, b"3\n" + honest.SEND, b"2\n" + honest.QUEUED),
        ),
        "door.push": Target(arrived(push_wire.decode), (honest.PUSH,)),
        "door.galaxy": Target(arrived(lambda b: GALAXY.decode("1-1", as_fields(b))), honest.GALAXY),
    }


def _texts() -> dict[str, Target]:
    return {
        "queue.envelope": Target(_job, (honest.JOB, b'{"a":1}', b'{"a":1,"attempts":2}')),
        "template": Target(
            _rendered,
            (b"Hi {{a}}!\nAda", b"{{a.b}} {{ c }}\nhttps://x", b"{{a}}\njavascript:x"),
            (BadTemplate, BadIntent),
        ),
        "template.jinja": Target(_jinja, (b"{% for i in items %}{{ i.n }}{% endfor %}", b"{{ a|money('EUR') }}")),
        "address": Target(
            _address,
            (
                b"ada@example.org",
                b"+4915112345678",
                b"https://user@example.org:8443/a?b#c",
                b"Ada <ada@b.example>",
                "é@ü.example".encode(),
                b"http://[::1]/",
            ),
        ),
        "head.words": Target(
            _words,
            (honest.TRACE, b"1700000000000-1", b"Wed, 21 Oct 2026 07:28:00 GMT", b'"key-1"'),
            (Problem, BadIntent),
        ),
        "stream.resume": Target(_resume, (b"7", b"123456789012345678"), (Problem,)),
        "log": Target(
            lambda b: REDACTION.fields({"error": text(b), "body": b, "n": [text(b)]}),
            (honest.SEND, b"Authorization: Bearer abc.def", b"smtp://u:p@h +4915112345678 4111 1111 1111 1111"),
        ),
        "echo": Target(
            lambda b: without(b, ("Basic QUMxMjM6c2VjcmV0", "a-configured-secret")),
            (b"Basic QUMxMjM6c2VjcmV0", honest.SEND),
        ),
    }


def targets() -> Mapping[str, Target]:
    """All of them by name."""
    return {**_doors(), **_texts(), **vendors.targets()}
