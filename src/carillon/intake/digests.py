"""Digests: an accepted event waits in the digest of its person, and a loop tells each digest when it closes."""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable

import msgspec
from msgspec.structs import replace

from carillon.domain.digests import (
    GATE,
    MOST,
    THROTTLE,
    USUAL,
    WAITS,
    DigestEntry,
    DigestLedger,
    DueDigest,
    ThrottleEntry,
    check_window,
    digest_intent,
    told_over,
    window_end,
)
from carillon.domain.errors import BadIntent, LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.explain import Tell
from carillon.domain.intents import Intent, Recipient
from carillon.domain.notifications import Acceptance, Enrolment, Status
from carillon.domain.ports import Clock, Ids, Observer
from carillon.domain.timing import DigestWish, read_key
from carillon.faultpoint import faultpoint
from carillon.intake.plan import PlanRules

AT_ONCE = 50
"""How many digests one process tells side by side."""
LONGEST_WAIT = 5.0
"""The longest pause between two tries while the ledger is away."""


def rendered_as(intent: Intent) -> Intent:
    """The intent whose content is rendered: an event of a digest must fit the digest's template."""
    return intent if intent.timing.digest is None else replace(intent, payload=told_over([intent.payload]))


def gathered(
    intent: Intent, enrolment: Enrolment, rules: PlanRules, ids: Ids, now: float, *, tell: Tell | None = None
) -> Enrolment:
    """The enrolment with its routes in digests, if the intent asks for that; raises BadIntent for a wrong wish."""
    wish = intent.timing.digest
    if wish is None:
        return enrolment
    if _waits_for_its_time(enrolment, now):
        said = "digest: an event that waits in a digest has no scheduledFor; the window says when it is told"
        raise BadIntent("VALIDATION_ERROR", said, field="scheduledFor")
    if not rules.gathers:
        said = "digest: the ledger of a blueprint with probes alone (http.surface) gathers nothing; send each event"
        raise BadIntent("VALIDATION_ERROR", said, field="digest")
    most = _checked(intent, wish)
    waiting = {route.recipient_ref for route in enrolment.routes if route.status is Status.PENDING}
    entries = [
        _entry(intent, person, wish, enrolment, digest_id=ids(), most=most, now=now)
        for person in intent.recipients
        if person.ref in waiting
    ]
    if tell is not None and entries:
        closes = entries[0].closes_at_ms
        tell(GATE, {"key": wish.key, "window": wish.window, "max": most, "closesAt": closes})
    routes = tuple(
        replace(route, status=Status.SKIPPED, skipped_because=WAITS) if route.status is Status.PENDING else route
        for route in enrolment.routes
    )
    return replace(enrolment, routes=routes, digests=tuple(entries))


def _waits_for_its_time(enrolment: Enrolment, now: float) -> bool:
    planned = enrolment.notification.scheduled_for_ms
    return planned is not None and planned > now * 1000


def _checked(intent: Intent, wish: DigestWish) -> int:
    read_key(wish.key or "\n", "digest.key")
    check_window(wish.window)
    if wish.max is not None and not 1 <= wish.max <= MOST:
        raise BadIntent("VALIDATION_ERROR", f"digest.max must lie between 1 and {MOST}", field="digest.max")
    if intent.synchronous:
        raise BadIntent("SYNCHRONOUS_UNAVAILABLE", "what waits for a digest is never synchronous", field="synchronous")
    return USUAL if wish.max is None else wish.max


def _entry(
    intent: Intent, person: Recipient, wish: DigestWish, enrolment: Enrolment, *, digest_id: str, most: int, now: float
) -> DigestEntry:
    alone = replace(
        intent,
        recipients=(person.given or person,),
        payload={},
        content=None,
        notification_id=None,
        idempotency_key=None,
    )
    channels = [route.channel for route in enrolment.routes if route.recipient_ref == person.ref]
    return DigestEntry(
        digest_id=digest_id,
        audience=person.ref,
        channels=",".join(channels),
        key=wish.key,
        closes_at_ms=max(
            round(window_end(wish.window, now, person.time_zone) * 1000), enrolment.notification.scheduled_for_ms or 0
        ),
        most=most,
        size=len(enrolment.notification.payload_json),
        intent_json=msgspec.json.encode(alone).decode(),
        quiet_hours=person.quiet_hours,
    )


def throttled(intent: Intent, enrolment: Enrolment, rules: PlanRules, ids: Ids, now: float) -> Enrolment:
    """The enrolment with the throttles that its people have on its category; what is synchronous has none."""
    category = None if intent.category is None else rules.categories.find(intent.category, intent.tenant_id)
    throttle = None if category is None else category.throttle
    if category is None or throttle is None or intent.synchronous or intent.timing.gathered:
        return enrolment
    wish = DigestWish(_overflow_key(category.name, enrolment, now), f"{throttle.seconds}s", MOST)
    waiting = {route.recipient_ref for route in enrolment.routes if route.status is Status.PENDING}
    entries = [
        ThrottleEntry(
            audience=person.ref,
            category=category.name,
            throttle=throttle,
            instead=_entry(intent, person, wish, enrolment, digest_id=ids(), most=MOST, now=now)
            if throttle.overflow == "digest"
            else None,
        )
        for person in intent.recipients
        if person.ref in waiting
    ]
    return replace(enrolment, throttles=tuple(entries))


def _overflow_key(category: str, enrolment: Enrolment, now: float) -> str:
    """The digest of what is too much; what has a time of its own is told with others of that time alone."""
    key, planned = f"{THROTTLE}:{category}", enrolment.notification.scheduled_for_ms
    if planned is None or not _waits_for_its_time(enrolment, now):
        return key
    return f"{key} {dt.datetime.fromtimestamp(planned / 1000, dt.UTC).isoformat(timespec='milliseconds')}"


class DigestCloser:
    """Tells each digest once it closes, through the gates as they stand then.

    A digest's notification has the digest's id: a process that dies between storing and noting it stores nothing twice.
    """

    def __init__(
        self,
        ledger: DigestLedger,
        accept: Callable[[Intent], Awaitable[Acceptance]],
        clock: Clock,
        observer: Observer,
        *,
        lease_seconds: float,
        poll_seconds: float = 1.0,
    ) -> None:
        self._ledger = ledger
        self._accept = accept
        self._clock = clock
        self._observe = observer
        self._lease = lease_seconds
        self._poll = poll_seconds

    async def run(self) -> None:
        """Close and tell until cancelled."""
        wait = self._poll
        while True:
            pause = self._poll
            try:
                told = await self.tell_due()
                wait = self._poll
            except LedgerUnavailable as error:
                pause, wait = wait, min(wait * 2, LONGEST_WAIT)
                self._observe(Trouble(where="digests", error=str(error), retry_in_seconds=pause))
                told = 0
            if told < AT_ONCE:
                await self._clock.sleep(pause)

    async def tell_due(self) -> int:
        """Tell what is due; returns how many digests were taken."""
        due = await self._ledger.close_digests(AT_ONCE, self._lease)
        # Side by side, so that their notifications share a commit.
        said = await asyncio.gather(*(self._close(digest) for digest in due), return_exceptions=True)
        for digest, error in zip(due, said, strict=True):
            if isinstance(error, LedgerUnavailable | asyncio.CancelledError):
                raise error
            if error is not None:
                # One that cannot be told keeps no other from it, and is tried again when its lease is over.
                self._observe(Trouble(where="digests", error=f"{digest.digest_id}: {type(error).__name__}: {error}"))
        return len(due)

    async def _close(self, digest: DueDigest) -> None:
        faultpoint("after_digest_closed")
        await self._ledger.told_digest(digest.digest_id, await self._tell(digest))

    async def _tell(self, digest: DueDigest) -> str | None:
        """Store the digest's notification; returns why there can never be one."""
        if not digest.events:
            return "no event was left to tell"
        try:
            await self._accept(digest_intent(digest))
        except BadIntent as error:
            self._observe(Trouble(where="digests", error=f"{digest.digest_id}: {error}"))
            return str(error)
        faultpoint("after_digest_stored")
        return None
