"""Acceptance straight into an idle worker's hands: the first claim is made in the commit that accepts."""

from collections import Counter
from collections.abc import Sequence

from carillon.domain.claims import Claim
from carillon.domain.notifications import Enrolled, Enrolment, is_due_now
from carillon.domain.synchronous import HoldingLedger
from carillon.outbound.worker import Worker


class IdleHands:
    """Satisfies Hands; a process that dies with what it took leaves leases that run out, as after any claim."""

    def __init__(self, worker: Worker, ledger: HoldingLedger, owner: str, lease_seconds: float) -> None:
        self._worker = worker
        self._ledger = ledger
        self._owner = owner
        self._seconds = lease_seconds

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled] | None:
        wanted = Counter(route.provider for each in batch for route in each.routes if is_due_now(each, route))
        asked_at = await self._worker.reserve(wanted) if wanted else None
        if asked_at is None:
            return None
        claims: list[Claim] = []
        try:
            written = await self._ledger.enrol_held(batch, self._owner, self._seconds)
            claims = [claim for each in written for claim in each.claims]
        finally:
            self._worker.take(wanted, claims, asked_at)
        return [each.enrolled for each in written]
