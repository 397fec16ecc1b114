"""Telling the ledger who reads here, and waking what waits for them."""

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from itertools import islice

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.ports import Clock, Observer
from carillon.domain.streams import Presence, StreamLedger
from carillon.live.hub import Hub

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
AT_ONCE = 250
SECOND_LOOK_SECONDS = 1.0
"""What was being put off at the moment somebody came is found by looking once more."""


def _batched(people: Collection[str], size: int) -> Iterator[tuple[str, ...]]:
    """All of them, so many at a time."""
    rest = iter(people)
    while some := tuple(islice(rest, size)):
        yield some


class Attendance:
    """Brings what the ledger believes into line with who is here; a state, so nothing has an order to lose."""

    def __init__(
        self,
        *,
        ledger: StreamLedger,
        presence: Presence | None,
        replica: str,
        seconds: float,
        clock: Clock,
        observer: Observer,
    ) -> None:
        """Without `presence` nobody else reads this ledger; `seconds` is how long a silent replica is believed in."""
        self._ledger = ledger
        self._presence = presence
        self._replica = replica
        self._seconds = seconds
        self._clock = clock
        self._observe = observer
        self._hub: Hub | None = None
        self._changed: set[str] = set()
        self._again: set[str] = set()
        self._stirred = asyncio.Event()
        self._renew_at = 0.0
        self._again_at = 0.0

    def watch(self, hub: Hub) -> None:
        """Whose seats these are."""
        self._hub = hub

    def changed(self, user_id: str) -> None:
        """Somebody came or went."""
        self._changed.add(user_id)
        self._stirred.set()

    async def run(self) -> None:
        """Until cancelled."""
        wait = FIRST_WAIT
        while True:
            try:
                await self._turn()
                wait = FIRST_WAIT
            except LedgerUnavailable as error:
                self._observe(Trouble(where="presence", error=str(error), retry_in_seconds=wait))
                await self._clock.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)

    async def farewell(self) -> None:
        """This replica reads nobody's log any more."""
        if self._presence is not None:
            with contextlib.suppress(LedgerUnavailable):
                await self._presence.renew(self._replica, 0.0)

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        if now >= self._renew_at:
            await self._renew()
            self._renew_at = now + self._seconds / 3
        if self._again and now >= self._again_at:
            again, self._again = self._again, set()
            await self._wake(again)
        if self._changed:
            await self._settle()
        due = self._renew_at if not self._again else min(self._renew_at, self._again_at)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - self._clock.monotonic())):
                await self._stirred.wait()
        self._stirred.clear()

    async def _renew(self) -> None:
        people = set() if self._hub is None else set(self._hub.people())
        if self._presence is not None and not await self._presence.renew(self._replica, self._seconds):
            # Forgotten by the others, or new: everybody arrives.
            self._changed |= people
        await self._wake(people)

    async def _settle(self) -> None:
        if self._hub is None:
            return
        changed, self._changed = self._changed, set()
        came = {user_id for user_id in changed if self._hub.here(user_id)}
        try:
            if self._presence is not None:
                # Known to be here before anything is due: whoever claims it asks where they are.
                if came:
                    await self._presence.arrive(self._replica, came)
                if changed - came:
                    await self._presence.leave(self._replica, changed - came)
            await self._wake(came)
        except LedgerUnavailable:
            self._changed |= changed
            raise
        if came:
            self._again |= came
            self._again_at = self._clock.monotonic() + SECOND_LOOK_SECONDS

    async def _wake(self, people: set[str]) -> None:
        # A few at a time: what is being told to others does not wait while thousands of names are written down.
        for some in _batched(people, AT_ONCE):
            await self._ledger.wake(some)
