"""Takes back leases whose worker died, so that everybody can see what waits again and what was given up."""

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import LeasesReset, Trouble
from carillon.domain.leases import LeaseLedger, Reset
from carillon.domain.policy import Backoff
from carillon.domain.ports import Clock, Observer, Signal

BATCH = 1000
_BACKOFF = Backoff(base_delay_seconds=0.5, max_delay_seconds=5.0, jitter="none")


class LeaseCleanup:
    """Looks every interval; nothing depends on it, because an expired lease is claimable without it."""

    def __init__(
        self, ledger: LeaseLedger, signal: Signal, observer: Observer, clock: Clock, every_seconds: float
    ) -> None:
        self._ledger = ledger
        self._signal = signal
        self._observe = observer
        self._clock = clock
        self._every = every_seconds

    async def run(self) -> None:
        """Go on until cancelled."""
        failures = 0
        while True:
            try:
                await self.reset()
            except LedgerUnavailable as error:
                failures += 1
                wait = min(_BACKOFF.delay(failures, 0.0), self._every)
                self._observe(Trouble(where="lease reset", error=str(error), retry_in_seconds=wait))
            else:
                failures, wait = 0, self._every
            await self._clock.sleep(wait)

    async def reset(self) -> Reset:
        """Take back whatever ran out by now; says how much even when it could not finish."""
        count = failed = 0
        try:
            while True:
                batch = await self._ledger.reset_expired(BATCH)
                count, failed = count + batch.count, failed + batch.failed
                if batch.count < BATCH:
                    break
        finally:
            if count:
                self._observe(LeasesReset(count=count, failed=failed))
                self._signal.ring()
        return Reset(count, failed)
