"""Ten thousand bulk messages in the queue, a slow vendor, and somebody who is in a hurry."""

import threading
import time
from itertools import count
from typing import Any

import pytest

from tests.support.client import Client
from tests.support.listo_stand import ADDRESSES, DEVICE, EMAIL, HANGS, Listo, stand_fixture
from tests.support.vendor import Entry, Reply
from tests.support.waiting import wait_until

listo = stand_fixture(start=False)

MANY = 10_000
BATCH = 500
BULK_SECONDS = 3.0
UNDER_WAY = 100


def fill(listo: Listo, many: int = MANY) -> None:
    """Accept everything before anybody sends."""
    listo.start("--roles", "doors,upkeep")
    item = {"templateKey": "newsletter", "channel": "email", "recipient": EMAIL, "isBulk": True}
    items = [{**item, "data": {"title": "bulk", "text": f"number {number}"}} for number in range(BATCH)]
    for _ in range(many // BATCH):
        reply = listo.client.call("POST", "/api/v1/notifications/batch", {"notifications": items})
        assert (reply.status, reply.body["accepted"]) == (202, BATCH)
    listo.programs.pop().close()


@pytest.mark.req("S2-22", "S2-29")
def test_neither_a_priority_nor_a_synchronous_message_waits_for_bulk(listo: Listo) -> None:
    usual, bulk = listo.sendgrid.default, count()

    def slow(entry: Entry) -> Reply:
        """Bulk is kept busy by waiting once it is under way: quick answers would take the processor from others."""
        answer = usual(entry) if callable(usual) else usual
        delay = BULK_SECONDS if "bulk" in entry["body"] and next(bulk) > UNDER_WAY else 0.2
        return Reply(answer.status, answer.headers, answer.body, delay=delay)

    fill(listo)
    listo.sendgrid.default = slow
    listo.start()
    wait_until(lambda: len(listo.calls("SendGrid", "bulk")) > UNDER_WAY, timeout=60, what="bulk under way")
    waits = []
    for _ in range(10):
        began = time.monotonic()
        assert listo.send("driver_assigned", "push", recipient=DEVICE, synchronous=True).status == 200
        waits.append(time.monotonic() - began)
    began = time.monotonic()
    assert listo.send("order_confirmed", "email", synchronous=True).status == 200
    by_the_busy_vendor = time.monotonic() - began
    hurries = []
    for _ in range(3):
        began = time.monotonic()
        hurried = listo.sent("order_confirmed", "email", priority="high")
        listo.until(hurried, "delivered", timeout=40)
        hurries.append(time.monotonic() - began)
    left = listo.rows("SELECT count(*) AS n FROM routes WHERE status = 'pending' AND lane = 3")[0]["n"]
    assert left > MANY // 2, "the queue was nearly empty, and this proved nothing"
    # Most of the bulk still waits: nobody waited for it. A busy machine may be late by itself.
    assert sorted(waits)[len(waits) // 2] < 1.5, waits
    assert max(*waits, by_the_busy_vendor) < 5.0
    # The mode's latency is 5 s; a call of bulk takes 3 s, so that two of them do not fit into it.
    assert max(hurries) < 5.0, hurries
    late = listo.rows("SELECT count(*) AS n FROM attempts_told WHERE classification = 'timeout'")[0]["n"]
    assert late == 0, "the time of a call that waits for a connection ran out"


SLOTS = 50
"""How many calls a process has under way at once here; the default is 1,000."""
FOR_BULK = SLOTS - SLOTS // 10


@pytest.mark.req("S2-29")
def test_a_synchronous_message_passes_a_bulk_that_holds_its_slots(listo: Listo) -> None:
    """No answer to bulk ever comes: a message that waited behind it would wait for its timeout of two seconds."""
    usual, gate = listo.sendgrid.default, threading.Event()

    def held(entry: Entry) -> Reply:
        answer = usual(entry) if callable(usual) else usual
        return Reply(answer.status, answer.headers, answer.body, gate=gate if "bulk" in entry["body"] else None)

    fill(listo, 2_000)
    listo.sendgrid.default = held
    at_once = {"CARILLON_WORK__CONCURRENCY": str(SLOTS), "CARILLON_WORK__FIRST_CLAIMS": str(SLOTS)}
    programs = [listo.start(**at_once) for _ in range(2)]
    wait_until(
        lambda: len(listo.calls("SendGrid", "bulk")) >= 2 * FOR_BULK, timeout=60, what="every slot for bulk taken"
    )
    body = {"templateKey": "order_confirmed", "synchronous": True}
    for program in programs:
        for tenant in ("acme", "umbrella"):
            for channel, address in ADDRESSES.items():
                asked = {**body, "channel": channel, "recipient": address, "tenantId": tenant}
                reply = Client.of(program).call("POST", "/api/v1/notifications/send", asked)
                assert reply.status == 200, (program.pid, tenant, channel, reply)
    done = listo.rows("SELECT count(*) AS n FROM routes WHERE lane = 3 AND status <> 'pending'")[0]["n"]
    assert (done, len(listo.calls("SendGrid", "bulk"))) == (0, 2 * FOR_BULK), "bulk held its slots the whole time"
    gate.set()


QUEUES: dict[str, dict[str, Any]] = {
    "listo-notifications-priority": {"priority": "high"},
    "listo-notifications-queue": {},
    "listo-notifications-bulk": {"isBulk": True},
}

SHORT = "[ledger]\nlease_seconds = 8\n" + "".join(
    f"[lanes.{lane}]\ntimeout_seconds = 5\n" for lane in ("priority", "standard", "bulk")
)
SHORT += "".join(
    f'[policy.retry."{policy}"]\ntimeoutSeconds = 5\n' for policy in ("auth/sms", "*/email", "orders/push", "*/*")
)
"""A call and a claim that end soon."""


@pytest.mark.req("S2-23")
def test_every_queue_gives_out_again_what_a_killed_process_held(listo: Listo) -> None:
    usual = listo.sendgrid.default, listo.acs.default
    settings = listo.folder / "listo.toml"
    settings.write_text(f"{settings.read_text()}\n{SHORT}")
    killed = listo.start()
    listo.sendgrid.default = listo.acs.default = HANGS
    replies = [listo.send(**fields) for fields in QUEUES.values()]
    assert [reply.body["queueName"] for reply in replies] == list(QUEUES)
    ids = [reply.body["notificationId"] for reply in replies]

    def calls() -> list[int]:
        return [len(listo.calls("SendGrid", one)) + len(listo.calls("AZURE_ACS", one)) for one in ids]

    wait_until(lambda: all(calls()), timeout=40, what="a call for each queue")
    killed.kill()
    listo.programs.remove(killed)
    # Nobody was told what became of these calls.
    told = calls()
    listo.sendgrid.default, listo.acs.default = usual
    listo.start()
    for one in ids:
        listo.until(one, "delivered", timeout=60)
    assert all(after > before for before, after in zip(told, calls(), strict=True)), (told, calls())
