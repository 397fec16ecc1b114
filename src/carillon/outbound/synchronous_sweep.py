"""The sweep of synchronous deliveries whose process died: they become dead letters, as it is too late to send them."""

from collections.abc import Iterable

from carillon.domain.claims import Claim, Settlement, Want
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.lanes import Lane
from carillon.domain.outcomes import Unknown
from carillon.domain.ports import Backlog, Clock, Observer
from carillon.domain.synchronous import HoldingLedger, timed_out_text
from carillon.domain.verdicts import Bury
from carillon.outbound.attempt import noted
from carillon.outbound.settle import Settler

BATCH = 100
LONGEST_WAIT = 5.0


class SynchronousSweep:
    """Sweeps the lane without workers: expired leases become dead letters, redriven routes move to lane `instead`."""

    def __init__(
        self,
        *,
        ledger: HoldingLedger,
        backlog: Backlog,
        settler: Settler,
        lane: Lane,
        instead: Lane,
        providers: Iterable[str],
        clock: Clock,
        observer: Observer,
        owner: str,
        every_seconds: float = 1.0,
    ) -> None:
        self._ledger = ledger
        self._backlog = backlog
        self._settler = settler
        self._lane = lane
        self._instead = instead
        self._wants = [Want(lane.rank, provider, BATCH) for provider in sorted(set(providers))]
        self._clock = clock
        self._observe = observer
        self._owner = owner
        self._every = every_seconds

    async def run(self) -> None:
        """Sweep until cancelled."""
        wait = self._every
        while True:
            try:
                await self.sweep()
                wait = self._every
            except LedgerUnavailable as error:
                self._observe(Trouble(where="abandoned", error=str(error), retry_in_seconds=wait))
                wait = min(wait * 2, LONGEST_WAIT)
            await self._clock.sleep(wait)

    async def sweep(self) -> int:
        """Dead-letter the deliveries that no caller waits for; returns how many."""
        # Redriven routes first: they are due as well, and must not be taken for abandoned ones.
        await self._ledger.queue_unheld(self._lane.rank, self._instead.rank)
        claims = await self._backlog.claim(self._wants, BATCH, self._owner)
        await self._settler.settle_many([self._dead_letter(claim) for claim in claims])
        return len(claims)

    def _dead_letter(self, claim: Claim) -> Settlement:
        lost = Unknown("the process that delivered it died", "abandoned")
        text = timed_out_text(self._lane.timeout_seconds or 0.0)
        return Settlement(
            claim=claim,
            verdict=Bury("DELIVERY_TIMEOUT", f"DELIVERY_TIMEOUT: {text}"),
            note=noted(claim.provider, lost, 0.0),
        )
