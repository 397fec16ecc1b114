"""Presence of readers: it tells the ledger who reads at this replica, and wakes the routes that wait for them."""

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
"""A route may be deferred at the moment its reader connects: wake again after this pause."""


def _batched(people: Collection[str], size: int) -> Iterator[tuple[str, ...]]:
    """The people in groups of `size`."""
    rest = iter(people)
    while some := tuple(islice(rest, size)):
        yield some


class Attendance:
    """Makes the ledger's presence equal to the hub's readers; it compares states, so the order is irrelevant."""

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
        """`presence` is None if only this process uses the ledger; an unrenewed replica expires after `seconds`."""
        self._ledger = ledger
        self._presence = presence
        self._replica = replica
        self._seconds = seconds
        self._clock = clock
        self._observe = observer
        self._hub: Hub | None = None
        self._changed: set[str] = set()
        self._again: set[str] = set()
        self._woken = asyncio.Event()
        self._renew_at = 0.0
        self._again_at = 0.0

    def watch(self, hub: Hub) -> None:
        """Set the hub whose readers count."""
        self._hub = hub

    def changed(self, user_id: str) -> None:
        """A person connected or disconnected."""
        self._changed.add(user_id)
        self._woken.set()

    async def run(self) -> None:
        """Update the ledger until cancelled."""
        wait = FIRST_WAIT
        while True:
            try:
                await self._turn()
                wait = FIRST_WAIT
            except LedgerUnavailable as error:
                self._observe(Trouble(where="presence", error=str(error), retry_in_seconds=wait))
                await self._clock.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)

    async def leave(self) -> None:
        """Remove this replica from the ledger's presence."""
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
            await self._apply_changes()
        due = self._renew_at if not self._again else min(self._renew_at, self._again_at)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - self._clock.monotonic())):
                await self._woken.wait()
        self._woken.clear()

    async def _renew(self) -> None:
        people = set() if self._hub is None else set(self._hub.people())
        if self._presence is not None and not await self._presence.renew(self._replica, self._seconds):
            # The ledger does not know this replica: it is new or has expired. Report every reader.
            self._changed |= people
        await self._wake(people)

    async def _apply_changes(self) -> None:
        if self._hub is None:
            return
        changed, self._changed = self._changed, set()
        came = {user_id for user_id in changed if self._hub.here(user_id)}
        try:
            if self._presence is not None:
                # Report presence before waking routes: a worker that claims a route asks where the person reads.
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
        # In groups: deliveries to other readers must not wait while thousands of names are written.
        for some in _batched(people, AT_ONCE):
            await self._ledger.wake(some)
