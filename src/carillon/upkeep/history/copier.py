"""Copies what has ended to where it is looked back upon, behind the backs of those who deliver."""

import msgspec

from carillon.domain.errors import ArchiveUnavailable, LedgerUnavailable
from carillon.domain.events import HistoryKept, Trouble
from carillon.domain.history import Archive, HistoryLedger
from carillon.domain.policy import Backoff
from carillon.domain.ports import Clock, Observer
from carillon.faultpoint import faultpoint

_BACKOFF = Backoff(base_delay_seconds=0.25, max_delay_seconds=5.0, jitter="none")


class HistoryRules(msgspec.Struct, frozen=True, kw_only=True):
    """How much is copied at a time, how often, and how long this process is the one that does it."""

    batch: int = 5000
    poll_seconds: float = 5.0
    lag_seconds: float = 1.0
    lease_seconds: float = 30.0
    """Longer than the archive may take over a batch; two at once would do no harm but work."""


class History:
    """Reads endings in the order they were written and notes how far it has come only once the archive has them.

    A crash in between copies them again, and the archive counts an ending once however often it comes.
    """

    def __init__(
        self,
        ledger: HistoryLedger,
        archive: Archive,
        *,
        owner: str,
        clock: Clock,
        observer: Observer,
        rules: HistoryRules | None = None,
    ) -> None:
        """`owner` is this process's alone."""
        self._ledger = ledger
        self._archive = archive
        self._owner = owner
        self._clock = clock
        self._observe = observer
        self._rules = rules or HistoryRules()

    async def run(self) -> None:
        """Go on until cancelled."""
        failures = 0
        while True:
            try:
                more = await self.keep()
            except (ArchiveUnavailable, LedgerUnavailable) as error:
                failures += 1
                wait = _BACKOFF.delay(failures, 0.0)
                self._observe(Trouble(where="history", error=str(error), retry_in_seconds=wait))
            else:
                failures, wait = 0, 0.0 if more else self._rules.poll_seconds
            await self._clock.sleep(wait)

    async def keep(self) -> bool:
        """Copy one batch; whether there may be more to copy at once."""
        rules = self._rules
        cursor = await self._ledger.take_history(self._owner, rules.lease_seconds, rules.lag_seconds)
        if cursor is None:
            return False
        endings = await self._ledger.endings(cursor.mark, cursor.until_us, rules.batch)
        if not endings:
            return False
        faultpoint("before_history")
        await self._archive.add(endings)
        faultpoint("after_history")
        if await self._ledger.advance_history(self._owner, endings[-1].mark):
            behind = self._clock.wall() - endings[-1].changed_us / 1e6
            self._observe(HistoryKept(endings=len(endings), behind_seconds=max(0.0, behind)))
        return len(endings) == rules.batch
