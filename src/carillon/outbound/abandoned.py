"""Deliveries somebody waited for whose process died: they are buried, because sending them now would be too late."""

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
from carillon.outbound.settling import Settling

BATCH = 100
LONGEST_WAIT = 5.0


class Abandoned:
    """Looks after a lane without workers: ended leases are buried, what was given back is queued in `instead`."""

    def __init__(
        self,
        *,
        ledger: HoldingLedger,
        backlog: Backlog,
        settling: Settling,
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
        self._settling = settling
        self._lane = lane
        self._instead = instead
        self._wants = [Want(lane.rank, provider, BATCH) for provider in sorted(set(providers))]
        self._clock = clock
        self._observe = observer
        self._owner = owner
        self._every = every_seconds

    async def run(self) -> None:
        """Look again and again, for as long as the process lives."""
        wait = self._every
        while True:
            try:
                await self.look()
                wait = self._every
            except LedgerUnavailable as error:
                self._observe(Trouble(where="abandoned", error=str(error), retry_in_seconds=wait))
                wait = min(wait * 2, LONGEST_WAIT)
            await self._clock.sleep(wait)

    async def look(self) -> int:
        """Bury what nobody waits for any more; answers how much that was."""
        # First what was given back to be sent again: it is due as well, and must not be taken for abandoned.
        await self._ledger.queue_unheld(self._lane.rank, self._instead.rank)
        claims = await self._backlog.claim(self._wants, BATCH, self._owner)
        await self._settling.settle_many([self._buried(claim) for claim in claims])
        return len(claims)

    def _buried(self, claim: Claim) -> Settlement:
        lost = Unknown("the process that delivered it died", "abandoned")
        text = timed_out_text(self._lane.timeout_seconds or 0.0)
        return Settlement(
            claim=claim,
            verdict=Bury("DELIVERY_TIMEOUT", f"DELIVERY_TIMEOUT: {text}"),
            note=noted(claim.provider, lost, 0.0),
        )
