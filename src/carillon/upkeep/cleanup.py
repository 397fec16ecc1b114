"""Jobs that look after the ledger at intervals: pruning old rows, resetting expired leases, finding lost tickets."""

from collections.abc import Awaitable, Callable

import msgspec

from carillon.domain.admin import AuditLedger
from carillon.domain.claims import LeaseLedger, Reset
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import LeasesReset, Pruned, TicketsLost, Trouble
from carillon.domain.policy import Backoff
from carillon.domain.ports import Clock, Observer, Signal, UpkeepLedger

LEASE_BATCH = 1000
TICKET_BATCH, TICKET_BATCHES = 5000, 10
"""How many tickets one statement looks at, and how many statements one look has: half a second every two leases."""
_TICKET_LEASES, _TICKET_PAUSE_SECONDS = 2.0, 0.05
_BACKOFF = Backoff(base_delay_seconds=0.5, max_delay_seconds=5.0, jitter="none")


class RetentionRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long finished notifications are kept, and in which batches they are deleted."""

    interval_seconds: float = 3600.0
    record_seconds: float = 720 * 3600.0
    malformed_seconds: float = 2160 * 3600.0
    audit_seconds: float = 2160 * 3600.0
    throttle_seconds: float = 0.0
    """The longest time of a throttle: its counts are kept for so long, also where records are not."""
    batch: int = 500
    pause_seconds: float = 0.05
    """The pause between batches, so that pruning many old rows does not slow down new ones."""


class Retention:
    """Prunes at the start and then every interval; the ledger never prunes a notification that is not finished."""

    def __init__(self, ledger: UpkeepLedger, observer: Observer, clock: Clock, rules: RetentionRules) -> None:
        self._ledger = ledger
        self._observe = observer
        self._clock = clock
        self._rules = rules

    async def run(self) -> None:
        """Prune every interval until cancelled."""
        await _repeat(self.prune, "retention", self._rules.interval_seconds, self._clock, self._observe)

    async def prune(self) -> Pruned:
        """Delete every row past its time, batch by batch; reports the count even when a batch fails."""
        rules = self._rules
        records = malformed = 0
        try:
            while True:
                batch = await self._ledger.prune(rules.record_seconds, rules.malformed_seconds, rules.batch)
                records, malformed = records + batch[0], malformed + batch[1]
                if not any(batch):
                    break
                await self._clock.sleep(rules.pause_seconds)
            # A message may have several receipts: batches of messages leave some of them.
            while await self._ledger.prune_beside(rules.record_seconds, rules.batch) == rules.batch:
                await self._clock.sleep(rules.pause_seconds)
            counts = max(rules.record_seconds, rules.throttle_seconds)
            while await self._ledger.prune_throttles(counts, rules.batch) == rules.batch:
                await self._clock.sleep(rules.pause_seconds)
        finally:
            pruned = Pruned(records=records, malformed_intents=malformed)
            if records or malformed:
                self._observe(pruned)
        return pruned


class AuditRetention:
    """Prunes the audit log at the start and then every interval."""

    def __init__(self, audit: AuditLedger, observer: Observer, clock: Clock, rules: RetentionRules) -> None:
        self._audit = audit
        self._observe = observer
        self._clock = clock
        self._rules = rules

    async def run(self) -> None:
        """Prune every interval until cancelled."""
        await _repeat(self.prune, "retention", self._rules.interval_seconds, self._clock, self._observe)

    async def prune(self) -> int:
        """Delete every row past its time, batch by batch; reports the count even when a batch fails."""
        count = 0
        try:
            while batch := await self._audit.prune_audit(self._rules.audit_seconds, self._rules.batch):
                count += batch
                await self._clock.sleep(self._rules.pause_seconds)
        finally:
            if count:
                self._observe(Pruned(audit_rows=count))
        return count


class LeaseCleanup:
    """Resets expired leases every interval, so that reports show their routes as waiting or failed.

    Delivery does not depend on it: workers claim a route with an expired lease without it.
    """

    def __init__(
        self, ledger: LeaseLedger, signal: Signal, observer: Observer, clock: Clock, every_seconds: float
    ) -> None:
        self._ledger = ledger
        self._signal = signal
        self._observe = observer
        self._clock = clock
        self._every = every_seconds

    async def run(self) -> None:
        """Reset every interval until cancelled; a failed reset is retried after the interval at the latest."""
        await _repeat(self.reset, "lease reset", self._every, self._clock, self._observe, longest_wait=self._every)

    async def reset(self) -> Reset:
        """Reset every lease that has expired by now; reports the count even when a batch fails."""
        count = failed = 0
        try:
            while True:
                batch = await self._ledger.reset_expired(LEASE_BATCH)
                count, failed = count + batch.count, failed + batch.failed
                if batch.count < LEASE_BATCH:
                    break
        finally:
            if count:
                self._observe(LeasesReset(count=count, failed=failed))
                self._signal.ring()
        return Reset(count, failed)


class LostTickets:
    """Finds waiting routes that stand in no queue, and puts them back.

    A ticket is lost only if something is wrong, such as a table that was restored alone. If it was lost from a lease, a
    call may be under way, whose worker cannot renew it. So a route is put back a lease later, if it is lost still.
    """

    def __init__(self, ledger: UpkeepLedger, observer: Observer, clock: Clock, lease_seconds: float) -> None:
        self._ledger = ledger
        self._observe = observer
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._after = 0
        self._found: dict[int, float] = {}
        """By ticket: when it was found."""

    async def run(self) -> None:
        """Look every two leases, until cancelled."""
        await _repeat(self.look, "tickets", _TICKET_LEASES * self._lease_seconds, self._clock, self._observe)

    async def look(self) -> int:
        """Look at the next tickets, from the first one again after the last; returns how many routes were put back."""
        for _ in range(TICKET_BATCHES):
            lost, last = await self._ledger.lost_tickets(self._after, TICKET_BATCH)
            for ticket in lost:
                self._found.setdefault(ticket, self._clock.monotonic())
            self._after = last or 0
            if last is None:
                break
            await self._clock.sleep(_TICKET_PAUSE_SECONDS)
        return await self._put_back()

    async def _put_back(self) -> int:
        until = self._clock.monotonic() - self._lease_seconds
        ripe = [ticket for ticket, found_at in self._found.items() if found_at <= until]
        count = 0
        try:
            for at in range(0, len(ripe), TICKET_BATCH):
                batch = ripe[at : at + TICKET_BATCH]
                count += await self._ledger.put_back(batch)
                for ticket in batch:
                    del self._found[ticket]
        finally:
            if count:
                self._observe(TicketsLost(routes=count))
        return count


async def _repeat(
    job: Callable[[], Awaitable[object]],
    where: str,
    every_seconds: float,
    clock: Clock,
    observer: Observer,
    *,
    longest_wait: float = _BACKOFF.max_delay_seconds,
) -> None:
    failures = 0
    while True:
        try:
            await job()
        except LedgerUnavailable as error:
            failures += 1
            wait = min(_BACKOFF.delay(failures, 0.0), longest_wait)
            observer(Trouble(where=where, error=str(error), retry_in_seconds=wait))
        else:
            failures, wait = 0, every_seconds
        await clock.sleep(wait)
