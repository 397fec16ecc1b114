"""Two jobs that clean up the ledger at intervals: pruning old rows, and resetting expired leases."""

from collections.abc import Awaitable, Callable

import msgspec

from carillon.domain.admin import AuditLedger
from carillon.domain.claims import LeaseLedger, Reset
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import LeasesReset, Pruned, Trouble
from carillon.domain.policy import Backoff
from carillon.domain.ports import Clock, Observer, Signal, UpkeepLedger

LEASE_BATCH = 1000
_BACKOFF = Backoff(base_delay_seconds=0.5, max_delay_seconds=5.0, jitter="none")


class RetentionRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long finished notifications are kept, and in which batches they are deleted."""

    interval_seconds: float = 3600.0
    record_seconds: float = 720 * 3600.0
    malformed_seconds: float = 2160 * 3600.0
    audit_seconds: float = 2160 * 3600.0
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
