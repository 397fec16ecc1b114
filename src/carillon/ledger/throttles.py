"""Rows of throttles, the same for every engine: the last times of each person and category, kept under a lock."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from carillon.domain.digests import THROTTLE, WAITS, ThrottleEntry, is_full, recent
from carillon.domain.notifications import Enrolment, GatedRoute, Route, Status
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.ledger.sealing import Codec

Key = tuple[str, str, str]
"""Tenant, audience and category."""
_read_times = msgspec.json.Decoder(list[int]).decode


class ThrottleCounts:
    """The throttles of one batch, locked: what each notification adds, and what is over."""

    def __init__(self, rows: Sequence[Row], known: Collection[str] = ()) -> None:
        """`known` are the notifications that the ledger has already."""
        self._times = {_key(row): _read_times(row["times_json"]) for row in rows}
        self._places = {_key(row): row["place"] for row in rows}
        self._now_ms = int(rows[0]["now_ms"]) if rows else 0
        self._added: dict[Key, list[str]] = {}
        self._entries: dict[Key, ThrottleEntry] = {}
        self._known: set[object] = set(known)
        self.over: dict[str, tuple[GatedRoute, ...]] = {}
        """By notification, the routes that are skipped."""

    def judged(self, each: Enrolment) -> Enrolment:
        """The enrolment as it is stored: what is over is skipped, or gathered in a digest."""
        if each.throttles and self._is_repeat(each):
            return each
        for entry in each.throttles:
            key = (each.notification.tenant_id or "", entry.audience, entry.category)
            self._entries[key] = entry
            added = self._added.setdefault(key, [])
            times = [*self._times[key], *[self._now_ms] * len(added)]
            if is_full(times, entry.throttle, self._now_ms):
                each = self._overflow(each, entry)
            else:
                added.append(each.notification.notification_id)
        return each

    def _is_repeat(self, each: Enrolment) -> bool:
        """Whether it came before, in this batch or an earlier one: it is not stored again, and does not count."""
        told = each.notification
        names: set[object] = {told.notification_id}
        if told.idempotency_key is not None:
            names.add((told.producer, told.idempotency_key))
        repeat = bool(names & self._known)
        self._known |= names
        return repeat

    def _overflow(self, each: Enrolment, entry: ThrottleEntry) -> Enrolment:
        theirs = {one.route_id for one in each.routes if _waits(one, entry)}
        if entry.instead is not None:
            routes = _skipped(each.routes, theirs, WAITS, None)
            return replace(each, routes=routes, digests=(*each.digests, entry.instead))
        reason = entry.throttle.reason
        name = each.notification.notification_id
        gated = [
            GatedRoute(one.route_id, one.channel, THROTTLE, reason) for one in each.routes if one.route_id in theirs
        ]
        self.over[name] = (*self.over.get(name, ()), *gated)
        return replace(each, routes=_skipped(each.routes, theirs, reason, THROTTLE))

    def kept(self, written: Collection[str]) -> list[Row]:
        """The rows to write: only what was not in the ledger before counts."""
        rows: list[Row] = []
        for key, names in sorted(self._added.items()):
            new = sum(name in written for name in names)
            if new:
                times = recent([*self._times[key], *[self._now_ms] * new], self._entries[key].throttle, self._now_ms)
                rows.append(kept_row(self._places[key], times))
        return rows


def counted(batch: Sequence[Enrolment]) -> Steps[ThrottleCounts]:
    """Lock the throttles of a batch, in the order of their keys, before anything is stored."""
    keys = {
        (each.notification.tenant_id or "", entry.audience, entry.category)
        for each in batch
        for entry in each.throttles
    }
    rows = yield from locked(keys)
    told = [each.notification for each in batch if each.throttles]
    names = ("notification_id", "producer", "idempotency_key")
    known = yield Ask("throttle_known", each=[{name: getattr(one, name) for name in names} for one in told])
    return ThrottleCounts(rows, {row["notification_id"] for row in known})


def locked(keys: Collection[Key]) -> Steps[list[Row]]:
    """The rows of throttles, locked in the order of their keys; those that are missing are opened first.

    Nearly always all of them are there: people are told about a category more than once.
    """
    rows = yield Ask("throttle_lock", each=[_place(key) for key in sorted(keys)])
    there = {_key(row) for row in rows}
    missing = [_place(key) for key in sorted(keys) if key not in there]
    yield Ask("throttle_open", each=missing)
    return [*rows, *(yield Ask("throttle_lock", each=missing))]


def kept_row(place: object, times: Sequence[int]) -> Row:
    """The values of `throttle_keep`, for a row that `locked` has found at this place."""
    return {"place": place, "times_json": msgspec.json.encode(times).decode()}


def _waits(route: Route, entry: ThrottleEntry) -> bool:
    return route.status is Status.PENDING and route.recipient_ref == entry.audience


def _skipped(routes: tuple[Route, ...], theirs: Collection[str], reason: str, gate: str | None) -> tuple[Route, ...]:
    return tuple(
        replace(one, status=Status.SKIPPED, skipped_because=reason, skipped_by=gate) if one.route_id in theirs else one
        for one in routes
    )


def _key(row: Mapping[str, Any]) -> Key:
    return (row["tenant_id"], row["audience"], row["category"])


def _place(key: Key) -> Row:
    return dict(zip(("tenant_id", "audience", "category"), key, strict=True))


class ThrottleStore:
    """The part of LookupLedger about throttles."""

    engine: Engine
    _codec: Codec

    async def throttle_times(self, tenant_id: str | None, audience: str, category: str) -> list[int]:
        """The last times of notifications of this category to this person, in Unix milliseconds."""
        # Seals change the name of a bare address; what an older key has named counts no more.
        row = await self.engine.one("throttle_times", _place((tenant_id or "", self._codec.ref(audience), category)))
        return [] if row is None else _read_times(row["times_json"])
