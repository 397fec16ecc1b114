"""Receipts that came before their message was known here are looked at again."""

from carillon.domain.backoff import Backoff
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.ports import Clock, Observer, ReceiptLedger
from carillon.domain.receipts import AmendRules
from carillon.receipts.telling import tell

_BACKOFF = Backoff(base=0.5, cap=5.0, jitter="none")
_BATCH = 500


class Waiting:
    """A vendor may be faster than our own settlement: what it said then is not lost."""

    def __init__(
        self, ledger: ReceiptLedger, rules: AmendRules, observer: Observer, clock: Clock, interval_seconds: float
    ) -> None:
        self._ledger = ledger
        self._rules = rules
        self._observe = observer
        self._clock = clock
        self._interval = interval_seconds

    async def run(self) -> None:
        """Go on until cancelled."""
        failures = 0
        while True:
            try:
                await self.look()
            except LedgerUnavailable as error:
                failures += 1
                wait = _BACKOFF.delay(failures, 0.0)
                self._observe(Trouble(where="receipts", error=str(error), retry_in_seconds=wait))
            else:
                failures, wait = 0, self._interval
            await self._clock.sleep(wait)

    async def look(self) -> None:
        """Amend what can be amended by now."""
        while True:
            amended = await self._ledger.amend_waiting(self._rules, _BATCH)
            tell(amended, self._observe)
            if len(amended) < _BATCH:
                return
