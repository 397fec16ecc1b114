"""Removes what is older than anybody wanted to keep it."""

import msgspec

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Pruned, Trouble
from carillon.domain.policy import Backoff
from carillon.domain.ports import Clock, Observer, UpkeepLedger

_BACKOFF = Backoff(base_delay_seconds=0.5, max_delay_seconds=5.0, jitter="none")


class RetentionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long finished work is kept, and how gently it is removed."""

    interval_seconds: float = 3600.0
    record_seconds: float = 720 * 3600.0
    malformed_seconds: float = 2160 * 3600.0
    batch: int = 500
    pause_seconds: float = 0.05
    """Between batches, so that a mountain of old rows is not in the way of new ones."""


class Retention:
    """Prunes at the start and then every interval; live work is never touched, which the ledger sees to."""

    def __init__(self, ledger: UpkeepLedger, observer: Observer, clock: Clock, settings: RetentionSettings) -> None:
        self._ledger = ledger
        self._observe = observer
        self._clock = clock
        self._settings = settings

    async def run(self) -> None:
        """Go on until cancelled."""
        failures = 0
        while True:
            try:
                await self.prune()
            except LedgerUnavailable as error:
                failures += 1
                wait = _BACKOFF.delay(failures, 0.0)
                self._observe(Trouble(where="retention", error=str(error), retry_in_seconds=wait))
            else:
                failures, wait = 0, self._settings.interval_seconds
            await self._clock.sleep(wait)

    async def prune(self) -> Pruned:
        """Remove everything that is old by now, batch by batch; says what went even when it could not finish."""
        settings = self._settings
        records = malformed = 0
        try:
            while True:
                batch = await self._ledger.prune(settings.record_seconds, settings.malformed_seconds, settings.batch)
                records, malformed = records + batch[0], malformed + batch[1]
                if not any(batch):
                    break
                await self._clock.sleep(settings.pause_seconds)
        finally:
            pruned = Pruned(records=records, malformed_intents=malformed)
            if records or malformed:
                self._observe(pruned)
        return pruned
