"""Fills a ledger with due routes, through `enrol`, as fast as it goes."""

import json
import sys
import time

import uvloop

from carillon.domain.groups import Groups
from carillon.domain.notifications import Enrolment, Notification, Route
from carillon.ledger.opening import open_ledger
from carillon.system import new_id

BATCH = 500
PAYLOAD = '{"link":"https://example.org/start","name":"Ada"}'
MESSAGE = '{"text":"Hi Ada, welcome! Start here: https://example.org/start","subject":"Welcome, Ada!"}'

_GROUPS = {"webhook": Groups(by="endpoint", cap=1)}


def enrolment(channel: str, provider: str, address: str) -> Enrolment:
    one = new_id()
    route = Route(
        route_id=f"{channel}:token:device-1",
        channel=channel,
        recipient_ref="token:device-1",
        lane=2,
        provider=provider,
        policy="*/*",
        max_attempts=6,
        address=address,
        resolved_locale="en-US",
        message_json=MESSAGE,
        group=_GROUPS.get(provider, Groups()).number(None, "token:device-1", address),
    )
    notification = Notification(
        notification_id=one,
        notification_type="welcome",
        producer="system",
        audience_kind="user",
        payload_json=PAYLOAD,
        request_fingerprint="0" * 64,
        priority=2,
        idempotency_key=one,
    )
    return Enrolment(notification, (route,))


async def main(url: str, count: int, channel: str, provider: str, address: str) -> None:
    ledger = await open_ledger(url)
    await ledger.migrate()
    began = time.perf_counter()
    for at in range(0, count, BATCH):
        await ledger.enrol([enrolment(channel, provider, address) for _ in range(min(BATCH, count - at))])
    seconds = time.perf_counter() - began
    await ledger.aclose()
    print(json.dumps({"count": count, "seconds": seconds, "rate": count / seconds}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]))
