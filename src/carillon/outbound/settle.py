"""Settlements of many attempts in few commits, and one event for each attempt."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias, assert_never

from carillon.coalesce import Coalescer
from carillon.domain.claims import Settled, Settlement
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import RouteAttempted, Trouble
from carillon.domain.gate_events import address_suppressed
from carillon.domain.ports import Backlog, Observer
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Skip, verdict_word
from carillon.faultpoint import faultpoint

FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0


class Settler:
    """Writes settlements to the ledger, and retries until the ledger has them."""

    def __init__(self, backlog: Backlog, observer: Observer, max_batch: int = 500) -> None:
        self._backlog = backlog
        self._observe = observer
        self._coalescer: Coalescer[Settlement, Settled] = Coalescer(
            self._flush, max_batch=max_batch, max_pending=1_000_000
        )
        self._giving_up = asyncio.Event()

    async def settle(self, settlement: Settlement) -> Settled:
        """Settle one claim; returns after the commit."""
        settled = await self._coalescer.add(settlement)
        self._report(settlement, settled)
        return settled

    async def settle_many(self, settlements: Sequence[Settlement]) -> None:
        """Settle many claims; a settlement that fails does not affect the others."""
        if not settlements:
            return
        try:
            results = await self._coalescer.add_all(settlements)
        except LedgerUnavailable as error:
            results = [error] * len(settlements)
        for settlement, settled in zip(settlements, results, strict=True):
            if isinstance(settled, Settled):
                self._report(settlement, settled)
            else:
                self._observe(Trouble(where="settle", error=f"{settlement.claim.idempotency_key}: {settled}"))

    def give_up(self) -> None:
        """End of the drain: try an absent ledger once more and wait no longer; the leases expire by themselves."""
        self._giving_up.set()

    async def _flush(self, settlements: Sequence[Settlement]) -> list[Settled]:
        faultpoint("before_settle")
        wait = FIRST_WAIT
        while True:
            try:
                settled = await self._backlog.settle(settlements)
            except LedgerUnavailable as error:
                if self._giving_up.is_set():
                    raise
                self._observe(Trouble(where="settle", error=str(error), retry_in_seconds=wait))
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._giving_up.wait()
                wait = min(wait * 2, LONGEST_WAIT)
            else:
                faultpoint("after_settle")
                return settled

    def _report(self, settlement: Settlement, settled: Settled) -> None:
        claim, verdict, note = settlement.claim, settlement.verdict, settlement.note
        if settlement.suppression is not None and settled is not Settled.STALE:
            by = claim.provider if note is None else note.provider
            self._observe(address_suppressed(settlement.suppression, by, *claim.key))
        if note is None and isinstance(verdict, Defer):
            # No provider was called: a route that waits for a breaker is not an event.
            return
        provider = claim.provider if note is None else note.provider
        # Positional arguments, in the order of the fields: keywords cost five times as much, once per message.
        self._observe(
            RouteAttempted(
                claim.notification_id,
                claim.notification_type,
                claim.producer,
                claim.audience_kind,
                claim.route_id,
                claim.channel,
                provider,
                claim.attempt,
                "none" if note is None else note.outcome,
                verdict_word(verdict),
                0.0 if note is None else note.duration_ms,
                settled,
                claim.attempts_before > 0 or provider != claim.provider,
                *(_PLAIN if isinstance(verdict, Finish) else _reasons(settlement)),
                claim.intent_key,
                claim.request_id,
                claim.trace_id,
                claim.user_id,
            )
        )


_Reasons: TypeAlias = tuple[str | None, str | None, float | None, str | None]
_PLAIN: _Reasons = (None, None, None, None)


def _reasons(settlement: Settlement) -> _Reasons:
    """Classification, error, delay and next provider of an attempt that did not succeed."""
    verdict, note = settlement.verdict, settlement.note
    match verdict:
        case Bury():
            return verdict.classification, verdict.reason, None, None
        case Skip():
            return verdict.gate, verdict.reason, None, None
        case Finish():
            return _PLAIN
        case Retry() | Defer() | FailOver():
            classification, error = (None, None) if note is None else (note.classification, note.error)
            following = verdict.provider if isinstance(verdict, FailOver) else None
            return classification, error, verdict.delay, following
        case _:
            assert_never(verdict)
