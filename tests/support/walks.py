"""The three ways that docs/explanation/one-notification.md describes, each driven from outside and recorded.

Each way is walked once unrecorded, so that lazy starts are over, and then as often as asked; `idle` adds a record of
the program while nothing is sent. The drivers look at the database and at the vendors' stubs, never at the program's
own API: a question would be a step of its own.
"""

import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tests.support import listo_callbacks
from tests.support.billing_stand import Billing
from tests.support.listo_stand import Listo
from tests.support.push_messages import message
from tests.support.push_stand import Push
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Redis
from tests.support.tracing import Passed, Trace, traced

IDLE_SECONDS = 4.0
"""Longer than the pauses of the loops that run in an idle program."""


Agrees = Callable[[list[Passed]], bool]
"""Whether the walks so far show the order that a page names."""
MOST = 8
"""On a busy machine steps of two tasks that do not wait for each other change places in several walks."""


def http(folder: Path, url: str, times: int, *, idle: bool = False, agrees: Agrees | None = None) -> list[Passed]:
    """One text message over HTTP, until Twilio's callback says that it arrived."""
    with Listo(folder, url) as listo:
        program = listo.start(**traced(folder))

        def walk() -> None:
            one = listo.sent("order_confirmed", "sms", recipient=listo_callbacks.phone())
            program.wait_for("route_attempted", lambda line: bool(line["notification_id"] == one))
            listo_callbacks.until_route(listo, one, status="published")
            sid = listo_callbacks.route_of(listo, one)["provider_message_id"]
            assert listo_callbacks.twilio(listo, sid, "delivered").status == 200
            listo_callbacks.until_route(listo, one, receipt="delivered")

        return _recorded(Trace(program, folder), walk, times, idle=idle, agrees=agrees)


def push_worker(
    folder: Path,
    url: str,
    times: int,
    *,
    rabbit: RabbitMQ,
    redis_server: Redis,
    idle: bool = False,
    agrees: Agrees | None = None,
) -> list[Passed]:
    """One message of push.queue, until FCM has it and the broker holds it no longer."""
    with Push(folder, rabbit=rabbit, redis_server=redis_server, url=url) as push:
        program = push.start(**traced(folder))

        def walk() -> None:
            sent = message()
            push.publish(sent)
            push.until_audited(sent, "sent")
            push.until_mark(sent, "sent")
            push.until_empty()

        return _recorded(Trace(program, folder), walk, times, idle=idle, agrees=agrees)


def billing(
    folder: Path, url: str, times: int, *, redis_server: Redis, idle: bool = False, agrees: Agrees | None = None
) -> list[Passed]:
    """One payment, until the subscription service has heard of it."""
    with Billing(folder, redis_server=redis_server, url=url) as stand:
        program = stand.start_payment(**traced(folder))

        def walk() -> None:
            reply = stand.pay(f"sub-{uuid4()}", amount="10.00")
            assert reply.status == 201, reply
            stand.subscription_stub.wait_for(1, lambda entry: reply.body["event_id"] in entry["body"])
            stand.until_idle()

        return _recorded(Trace(program, folder), walk, times, idle=idle, agrees=agrees)


def _recorded(trace: Trace, walk: Callable[[], None], times: int, *, idle: bool, agrees: Agrees | None) -> list[Passed]:
    walk()
    found: list[Passed] = []
    while len(found) < times or (agrees is not None and len(found) < MOST and not agrees(found)):
        trace.until_silent()
        trace.begin()
        walk()
        trace.until_silent()
        found.append(trace.end())
    if idle:
        trace.begin()
        time.sleep(IDLE_SECONDS)
        found.append(trace.end())
    return found
