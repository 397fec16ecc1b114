"""Notifications for people who read streams, for tests of the ledger."""

from itertools import count
from typing import Any
from uuid import UUID

import msgspec

from carillon.domain.claims import Claim, Want
from carillon.domain.notifications import Enrolment, Message
from carillon.ledger.opening import Ledger
from tests.support.ledger_builders import enrolment, route

_numbers = count(1)

LANES = (1, 2, 3)
SSE = "sse"


def told(user: str = "ann", *, priority: int = 2, provider: str = SSE, **changes: Any) -> Enrolment:
    """One notification for one person, as the sse blueprint's door plans it."""
    number = next(_numbers)
    laid = route(
        route_id=f"sse:user:{user}",
        channel=SSE,
        recipient_ref=f"user:{user}",
        lane=priority,
        provider=provider,
        policy="*/sse",
        address=user,
    )
    plain: dict[str, Any] = {
        "notification_id": str(UUID(int=number)),
        "notification_type": "job.new",
        "producer": "notifications",
        "priority": priority,
        "user_id": user,
        "payload_json": f'{{"number":{number}}}',
        "idempotency_key": f"event-{number}",
        "occurred_at_ms": 1_700_000_000_000 + number,
    }
    return enrolment(laid, **(plain | changes))


def in_app(
    user: str = "ann", *, recipient_ref: str | None = None, message: Message | None = None, **changes: Any
) -> Enrolment:
    """One message for somebody's inbox, as the HTTP door plans it."""
    ref = recipient_ref or f"user:{user}"
    laid = route(
        route_id=f"inApp:{ref}",
        channel="inApp",
        recipient_ref=ref,
        lane=2,
        provider="inbox",
        policy="*/inApp",
        address=user,
        message_json=msgspec.json.encode(message or Message("Hello.")).decode(),
    )
    plain: dict[str, Any] = {"notification_id": str(UUID(int=next(_numbers))), "priority": 2}
    return enrolment(laid, **(plain | changes))


def wants(limit: int = 100) -> list[Want]:
    return [Want(lane, SSE, limit) for lane in LANES]


async def claimed(ledger: Ledger, *enrolments: Enrolment, total: int = 1000, owner: str = "picker") -> list[Claim]:
    """Enrol these and claim whatever is due, the most urgent first."""
    if enrolments:
        await ledger.enrol(list(enrolments))
    return await ledger.claim(wants(total), total, owner)
