"""Receipts that arrive before the ledger knows their message: they wait, and are applied later."""

from collections.abc import Iterable

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import ReceiptTaken, Trouble
from carillon.domain.policy import Backoff
from carillon.domain.ports import Clock, Observer, ReceiptLedger
from carillon.domain.receipts import Amended, AmendRules

_BACKOFF = Backoff(base_delay_seconds=0.5, max_delay_seconds=5.0, jitter="none")
_BATCH = 500


class WaitingReceipts:
    """Applies waiting receipts at an interval: a vendor may report before our settlement is committed."""

    def __init__(
        self, ledger: ReceiptLedger, rules: AmendRules, observer: Observer, clock: Clock, interval_seconds: float
    ) -> None:
        self._ledger = ledger
        self._rules = rules
        self._observe = observer
        self._clock = clock
        self._interval = interval_seconds

    async def run(self) -> None:
        """Apply until cancelled."""
        failures = 0
        while True:
            try:
                await self.apply()
            except LedgerUnavailable as error:
                failures += 1
                wait = _BACKOFF.delay(failures, 0.0)
                self._observe(Trouble(where="receipts", error=str(error), retry_in_seconds=wait))
            else:
                failures, wait = 0, self._interval
            await self._clock.sleep(wait)

    async def apply(self) -> None:
        """Apply every waiting receipt whose message the ledger knows by now."""
        while True:
            amended = await self._ledger.amend_waiting(self._rules, _BATCH)
            observe_receipts(amended, self._observe)
            if len(amended) < _BATCH:
                return


def observe_receipts(amended: Iterable[Amended], observer: Observer) -> None:
    """Emit one event for each receipt, with its effect; an event holds no address."""
    for each in amended:
        receipt = each.receipt
        observer(
            ReceiptTaken(
                provider=receipt.provider,
                kind=str(receipt.kind),
                effect=str(each.effect),
                provider_message_id=receipt.provider_message_id,
                notification_id=each.notification_id,
                route_id=each.route_id,
                classification=receipt.classification,
                reason=receipt.reason,
            )
        )
