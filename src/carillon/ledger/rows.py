"""Conversion between domain values and rows, the same for every engine."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from carillon.border import clean_text
from carillon.domain.claims import Settled, Settlement
from carillon.domain.consent import UNGATED
from carillon.domain.digests import THROTTLE
from carillon.domain.intents import Malformed
from carillon.domain.notifications import (
    Accepted,
    Conflict,
    Duplicate,
    Enrolled,
    Enrolment,
    GatedRoute,
    Notification,
    Route,
    Status,
    Story,
    route_due_ms,
)
from carillon.domain.store import Row
from carillon.domain.suppressions import CLASSIFICATION, SuppressedRoute, Suppression, SuppressionRef
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Skip, verdict_word
from carillon.ledger.sealing import Codec

_LONGEST_TEXT = 2000
_SENT = "sent"
_LONGEST_DELAY = 10 * 365 * 86_400.0

ALERT_FROM = 1
"""The most urgent lane whose dead letters raise alerts; in lane 0 the waiting caller gets the error instead."""
RECOVERY_HINT = "Repair the cause, then redrive this route; it keeps its id and gets a fresh budget."
NEW_INTENT_HINT = (
    "Repair the cause, then publish a new intent with the same payload and audience and a new idempotency_key; "
    "this entry stays as it is."
)

RECORD_FIELDS = (
    "notification_id",
    "notification_type",
    "producer",
    "audience_kind",
    "recipient_user_ids",
    "payload_json",
    "idempotency_key",
    "request_fingerprint",
    "request_id",
    "trace_id",
    "occurred_at_ms",
    "idempotency_ttl_seconds",
    "origin",
    "tenant_id",
    "user_id",
    "priority",
    "is_bulk",
    "metadata_json",
    "scheduled_for_ms",
    "sent_by",
    "expires_at_ms",
    "category",
)

ROUTE_FIELDS = (
    "route_id",
    "channel",
    "recipient_ref",
    "max_attempts",
    "resolved_locale",
    "skipped_because",
    "skipped_by",
    "address",
    "lane",
    "provider",
    "policy",
    "message_json",
    "grp",
)

LAID_FIELDS = ("notification_id", *ROUTE_FIELDS, "scheduled_for_ms", "tenant_id")
"""The columns of a route and of its notification."""

MALFORMED_FIELDS = (
    "stream_entry_id",
    "notification_type",
    "producer",
    "idempotency_key",
    "failure_code",
    "failure_message",
    "raw_fields",
)

SETTLEMENT_FIELDS = (
    "notification_id",
    "route_id",
    "token",
    "verdict",
    "delay",
    "next_provider",
    "error_classification",
    "error_message",
    "suppression_json",
    "attempt",
    "provider",
    "outcome",
    "classification",
    "error",
    "provider_message_id",
    "duration_ms",
    "grp",
)

_record_fields = attrgetter(*RECORD_FIELDS)
_USERS = RECORD_FIELDS.index("recipient_user_ids")
_read_gated = msgspec.json.Decoder(tuple[GatedRoute, ...]).decode
_read_suppressed = msgspec.json.Decoder(tuple[SuppressedRoute, ...]).decode


def storable(text: str | None) -> str | None:
    """Text that every store accepts, so that a NUL, half a surrogate pair or a very long text cannot fail a batch."""
    if text is None:
        return None
    return clean_text(text, _LONGEST_TEXT)


def storable_json(value: object) -> str:
    """JSON text of any value, without characters that a JSON column refuses."""
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> object:
    match value:
        case bool() | None | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return clean_text(value.decode("utf-8", "replace"))
        case Mapping():
            return {clean_text(str(key)): _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return clean_text(str(value))


def record_values(notification: Notification, codec: Codec) -> tuple[Any, ...]:
    """The values of `RECORD_FIELDS`."""
    values: tuple[Any, ...] = _record_fields(notification)
    if notification.recipient_user_ids is not None:
        values = (*values[:_USERS], json.dumps(notification.recipient_user_ids), *values[_USERS + 1 :])
    return codec.fields(RECORD_FIELDS, values)


def route_rows(enrolment: Enrolment, codec: Codec) -> list[tuple[Any, ...]]:
    """One row per route: the values of `LAID_FIELDS`."""
    notification = enrolment.notification
    rows: list[tuple[Any, ...]] = [
        (
            notification.notification_id,
            route.route_id,
            route.channel,
            route.recipient_ref,
            route.max_attempts,
            route.resolved_locale,
            # Status and reason are one value here, so that no row can have only one of them.
            (route.skipped_because or UNGATED) if route.status is Status.SKIPPED else None,
            (route.skipped_by or UNGATED) if route.status is Status.SKIPPED else None,
            route.address,
            route.lane,
            route.provider,
            route.policy,
            route.message_json,
            route.group,
            route_due_ms(enrolment, route),
            notification.tenant_id,
        )
        for route in _each_once(enrolment.routes)
    ]
    return [codec.fields(LAID_FIELDS, row) for row in rows]


def _each_once(routes: tuple[Route, ...]) -> Iterable[Route]:
    # A route that occurs twice must not fail the batch; the first one counts.
    return reversed({route.route_id: route for route in reversed(routes)}.values()) if len(routes) > 1 else routes


def malformed_values(malformed: Malformed, codec: Codec) -> tuple[Any, ...]:
    """The values of `MALFORMED_FIELDS`."""
    values = (
        storable(malformed.stream_entry_id),
        storable(malformed.notification_type),
        storable(malformed.producer),
        storable(malformed.idempotency_key),
        storable(malformed.failure_code),
        storable(codec.refusal(malformed.failure_message, malformed.raw_fields)),
        storable_json(malformed.raw_fields),
    )
    return codec.fields(MALFORMED_FIELDS, values)


def answer_for_loser(notification: Notification, winner: Mapping[str, Any]) -> Enrolled:
    """The answer to an enrolment whose key or id was taken; Accepted if an earlier try of the same call wrote it."""
    same = winner["request_fingerprint"] == notification.request_fingerprint
    if not same:
        return Conflict(winner["notification_id"], expired=bool(winner["expired"]))
    suppressed = _read_suppressed(winner["suppressed_json"] or "[]")
    gated = _read_gated(winner["gated_json"] or "[]")
    if winner["notification_id"] == notification.notification_id:
        return Accepted(notification.notification_id, suppressed, tuple(one for one in gated if one.gate == THROTTLE))
    return Duplicate(winner["notification_id"], winner["lane"], suppressed, gated)


def suppressed_route(row: Mapping[str, Any]) -> SuppressedRoute:
    """A route that `enrol` has skipped because its address is suppressed."""
    held_by = SuppressionRef(row["suppression_id"], row["kind"], row["until_ms"])
    return SuppressedRoute(row["route_id"], row["channel"], held_by)


def rounds(settlements: Sequence[Settlement]) -> list[list[int]]:
    """Positions in key order, in rounds without a repeated route, because one statement changes a row only once."""
    order = sorted(range(len(settlements)), key=lambda place: settlements[place].claim.key)
    split: list[list[int]] = []
    before, depth = None, 0
    for place in order:
        key = settlements[place].claim.key
        depth = depth + 1 if key == before else 0
        before = key
        if depth == len(split):
            split.append([])
        split[depth].append(place)
    return split


def caused_suppressions(settlements: Iterable[Settlement], settled: Iterable[Settled]) -> list[Suppression]:
    """The suppressions of settlements that count; a stale one causes none."""
    return [
        one.suppression
        for one, came in zip(settlements, settled, strict=True)
        if one.suppression is not None and came is not Settled.STALE
    ]


def is_plain_success(settlement: Settlement) -> bool:
    """Whether the fast statement can settle this success: the claim has a place, and nothing else changes."""
    note = settlement.note
    return (
        isinstance(settlement.verdict, Finish)
        and settlement.claim.place is not None
        and note is not None
        and note.outcome == _SENT
        and settlement.suppression is None
    )


def finished_columns(settlements: Sequence[Settlement]) -> tuple[list[Any], ...]:
    """The columns of plain successes: places, tokens, providers, vendors' ids and durations."""
    rows = [
        (one.claim.place, one.claim.token, note.provider, storable(note.provider_message_id), note.duration_ms)
        for one in settlements
        if (note := one.note) is not None
    ]
    return tuple(list(column) for column in zip(*rows, strict=True))


def settlement_values(settlement: Settlement, codec: Codec, *, noted: bool = True) -> tuple[Any, ...]:
    """The values of `SETTLEMENT_FIELDS`; without an outcome, no attempt is stored."""
    settlement = codec.settlement(settlement)
    claim, verdict, note = settlement.claim, settlement.verdict, settlement.note
    delay: float | None = None
    next_provider: str | None = None
    classification = note.classification if note else None
    error = note.error if note else None
    match verdict:
        case Finish():
            next_provider = note.provider if note else None
            classification = error = None
        case Retry() | Defer():
            delay = verdict.delay
        case FailOver():
            delay, next_provider = verdict.delay, verdict.provider
        case Bury():
            classification, error = verdict.classification, verdict.reason
        case Skip():
            classification, error = verdict.gate, verdict.reason
    return (
        claim.notification_id,
        claim.route_id,
        claim.token,
        verdict_word(verdict),
        None if delay is None else min(max(0.0, delay), _LONGEST_DELAY),
        settlement.provider or next_provider,
        storable(classification),
        storable(error),
        claim.suppression_json if classification == CLASSIFICATION else None,
        claim.attempt,
        note.provider if note else None,
        note.outcome if note and noted else None,
        storable(note.classification) if note else None,
        storable(note.error) if note else None,
        storable(note.provider_message_id) if note else None,
        note.duration_ms if note else None,
        settlement.group,
    )


def chosen(filters: Mapping[str, Any], known: Sequence[str]) -> Row:
    """Every known filter, None for those left out; raises ValueError for an unknown one."""
    unknown = sorted(set(filters) - set(known))
    if unknown:
        raise ValueError(f"unknown filter {unknown[0]}; known are {', '.join(known)}")
    return {name: filters.get(name) for name in known}


def stories(
    records: Sequence[dict[str, Any]], routes: Iterable[dict[str, Any]], attempts: Iterable[dict[str, Any]]
) -> list[Story]:
    """Join rows into stories; `routes` and `attempts` must be sorted by notification."""
    routes_of = _by_notification(map(as_held, routes))
    attempts_of = _by_notification(attempts)
    return [
        Story(
            notification=record,
            routes=routes_of.get(record["notification_id"], []),
            attempts=attempts_of.get(record["notification_id"], []),
        )
        for record in records
    ]


def as_held(route: dict[str, Any]) -> dict[str, Any]:
    """A route with what its lease says of it: who holds it until when, and the attempt that is under way."""
    if route.get("held_by") is None:
        return route
    return {
        **route,
        "claim_token": route["held_token"],
        "lease_owner": route["held_by"],
        "claimed_at": route["held_since"],
        "next_attempt_at": route["held_until"],
        "attempt_count": route["held_attempt"],
        "before_claim": {name: route[name] for name in ("next_attempt_at", "attempt_count")},
    }


def _by_notification(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {key: list(group) for key, group in groupby(rows, key=lambda row: str(row["notification_id"]))}


def counted(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum up the rows of `counts`: one for each lane and status."""
    routes = dict.fromkeys([str(status) for status in Status], 0)
    lanes: dict[int, dict[str, Any]] = {}
    scheduled = 0
    for row in rows:
        routes[row["status"]] += row["routes"]
        if row["status"] == Status.PENDING:
            scheduled += row["routes"] - row["due"] - row["leased"]
        lane = lanes.setdefault(row["lane"], {"due": 0, "leased": 0, "oldest_due_seconds": None})
        lane["due"] += row["due"]
        lane["leased"] += row["leased"]
        lane["oldest_due_seconds"] = _older(lane["oldest_due_seconds"], row["oldest_due_seconds"])
    oldest = None
    for lane in lanes.values():
        oldest = _older(oldest, lane["oldest_due_seconds"])
    return {
        "routes": routes,
        "due": sum(lane["due"] for lane in lanes.values()),
        "leased": sum(lane["leased"] for lane in lanes.values()),
        "scheduled": scheduled,
        "oldest_due_seconds": oldest,
        "lanes": lanes,
    }


def _older(one: float | None, other: float | None) -> float | None:
    known = [age for age in (one, other) if age is not None]
    return max(known, default=None)
