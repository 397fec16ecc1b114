"""How rows of live streams become domain values, the same for every engine."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from carillon.domain.claims import Claim
from carillon.domain.streams import Entry, person_of

FORGOTTEN_SECONDS = 300.0
"""How long after its last word a replica is remembered."""


def each_once(claims: Sequence[Claim]) -> list[Claim]:
    """Without repeats of a route: a statement cannot draw two numbers for one."""
    return list({claim.key: claim for claim in claims}.values())


def appended(claim: Claim, user_id: str, row: Mapping[str, Any]) -> Entry:
    """What a claim became in its person's log."""
    return Entry(
        user_id=user_id,
        seq=row["seq"],
        notification_id=claim.notification_id,
        event_type=claim.notification_type,
        priority=row["priority"],
        event_timestamp_ms=row["event_timestamp_ms"],
        payload_json=claim.payload_json,
        read=bool(row["read"]),
        delivered=bool(row["delivered"]),
    )


def entries(rows: Iterable[tuple[Any, ...]]) -> list[Entry]:
    """Rows whose columns stand in the order of the fields."""
    return [
        Entry(user_id, seq, notification_id, event_type, priority, moment, payload, bool(read), bool(delivered))
        for user_id, seq, notification_id, event_type, priority, moment, payload, read, delivered in rows
    ]


def recipients(user_ids: Collection[str]) -> list[tuple[str, str | None]]:
    """Under which recipient and tenant the routes of these logs are laid."""
    found: list[tuple[str, str | None]] = []
    for tenant_id, user_id in sorted(map(person_of, user_ids), key=lambda each: (each[0] or "", each[1])):
        found += [(user_id, tenant_id), (f"user:{user_id}", tenant_id)]
    return found


def places(rows: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Person to replicas."""
    found: dict[str, set[str]] = {}
    for user_id, replica in rows:
        found.setdefault(user_id, set()).add(replica)
    return {user_id: frozenset(replicas) for user_id, replicas in found.items()}
