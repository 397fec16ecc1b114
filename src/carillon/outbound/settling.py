"""Settlements of many attempts in few commits, and the event that tells of each."""

import asyncio
from collections.abc import Sequence

from carillon.coalesce import Coalescer
from carillon.domain.claims import Settled, Settlement
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import RouteAttempted, Trouble
from carillon.domain.ports import Backlog, Observer
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, verdict_word
from carillon.faultpoint import faultpoint

FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0


class Settling:
    """Writes settlements down; what is known of a sent message is kept and tried again until the ledger has it."""

    def __init__(self, backlog: Backlog, observer: Observer, max_batch: int = 500) -> None:
        self._backlog = backlog
        self._observe = observer
        self._coalescer: Coalescer[Settlement, Settled] = Coalescer(
            self._flush, max_batch=max_batch, max_pending=1_000_000
        )
        self._giving_up = False

    async def settle(self, settlement: Settlement) -> Settled:
        """Settle one claim; returns after the commit."""
        settled = await self._coalescer.add(settlement)
        self._tell(settlement, settled)
        return settled

    async def settle_many(self, settlements: Sequence[Settlement]) -> None:
        """Settle what one batch call made, each on its own, so that one bad settlement fails alone."""
        waiting = [self._coalescer.add(settlement) for settlement in settlements]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        for settlement, settled in zip(settlements, results, strict=True):
            if isinstance(settled, Settled):
                self._tell(settlement, settled)
            elif isinstance(settled, BaseException):
                self._observe(Trouble(where="settle", error=f"{settlement.claim.idempotency_key}: {settled}"))

    def give_up(self) -> None:
        """At the end of draining an absent ledger is no longer waited for; leases will run out instead."""
        self._giving_up = True

    async def _flush(self, settlements: Sequence[Settlement]) -> list[Settled]:
        faultpoint("before_settle")
        wait = FIRST_WAIT
        while True:
            try:
                settled = await self._backlog.settle(settlements)
            except LedgerUnavailable as error:
                if self._giving_up:
                    raise
                self._observe(Trouble(where="settle", error=str(error), retry_in_seconds=wait))
                await asyncio.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                faultpoint("after_settle")
                return settled

    def _tell(self, settlement: Settlement, settled: Settled) -> None:
        claim, verdict, note = settlement.claim, settlement.verdict, settlement.note
        if note is None and isinstance(verdict, Defer):
            # Nothing was called and nothing was decided about the message: a route waiting for a breaker is no news.
            return
        self._observe(
            RouteAttempted(
                notification_id=claim.notification_id,
                notification_type=claim.notification_type,
                producer=claim.producer,
                route_id=claim.route_id,
                channel=claim.channel,
                provider=claim.provider if note is None else note.provider,
                attempt=claim.attempt,
                outcome="none" if note is None else note.outcome,
                verdict=verdict_word(verdict),
                duration_ms=0.0 if note is None else note.duration_ms,
                settled=settled,
                failed_over=claim.attempts_before > 0 or (note is not None and note.provider != claim.provider),
                classification=_classification(settlement),
                error=_error(settlement),
                delay_seconds=verdict.delay if isinstance(verdict, Retry | Defer | FailOver) else None,
                next_provider=verdict.provider if isinstance(verdict, FailOver) else None,
                request_id=claim.request_id,
                trace_id=claim.trace_id,
            )
        )


def _classification(settlement: Settlement) -> str | None:
    if isinstance(settlement.verdict, Bury):
        return settlement.verdict.classification
    return None if settlement.note is None or isinstance(settlement.verdict, Finish) else settlement.note.classification


def _error(settlement: Settlement) -> str | None:
    if isinstance(settlement.verdict, Bury):
        return settlement.verdict.reason
    return None if settlement.note is None else settlement.note.error
