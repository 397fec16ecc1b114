"""The sse provider: it appends a notification to the person's log and writes it to their live connections."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Literal, NamedTuple

import msgspec

from carillon.coalesce import Coalescer
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.errors import LedgerUnavailable, Overloaded
from carillon.domain.outcomes import STOPPING, Outcome, Sent, Throttled, Unavailable
from carillon.domain.streams import NOT_CONNECTED, Entry, Presence, StreamLedger, log_of_claim
from carillon.live.hub import HERE, Confirmation, Hub
from carillon.live.relay import ReplicaRelay
from carillon.live.turns import LogTurns, Turn
from carillon.providers.tools import Tools

CHANNELS = None
TELLS = frozenset({"delivered"})
"""A reader acknowledges what it got."""
AT_ONCE = 500
MOST_WAITING = 20_000
UNCONFIRMED_SECONDS = 1.0
"""The retry pause when no replica confirms: a replica that died counts as present until it expires."""

TURN_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)
"""When to look again whether an earlier notification of another process is in the log."""
TURN_SECONDS = 1.0
"""The retry pause when an earlier entry is still missing after `TURN_PAUSES`: its worker may have died."""
WAITING_SHARE = 0.5
"""How much of its time a call may wait for its turn while the line moves; the rest is for the connection."""


class Live(NamedTuple):
    """The parts of live streams in one process."""

    hub: Hub
    ledger: StreamLedger
    replica: str
    presence: Presence | None = None
    """None if only this process uses the ledger."""
    relay: ReplicaRelay | None = None
    buffer: int = 100
    """How many entries a reader may be behind."""

    async def elsewhere(self, logs: set[str]) -> dict[str, frozenset[str]]:
        """The other replicas at which these logs are read; logs that nobody reads elsewhere are left out."""
        if self.presence is None:
            return {}
        found = await self.presence.where(logs)
        others = {log: replicas - {self.replica} for log, replicas in found.items()}
        return {log: replicas for log, replicas in others.items() if replicas}


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What happens to a notification for a person who is not connected."""

    offline: Literal["hold", "fail"] = "hold"
    """Whether the notification waits for the person to connect, or fails."""
    hold_seconds: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    """How long it waits before the next attempt; a person who connects gets it at once."""
    written_seconds: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    """How long to wait for the confirmation that a connection has it."""


class SseProvider:
    """Satisfies Provider; one commit appends many entries, and each waits for its confirmation."""

    def __init__(self, name: str, settings: Settings, live: Live) -> None:
        self.name = name
        self._settings = settings
        self._live = live
        self._turns = LogTurns(live.hub, live.buffer)
        self._placing: Coalescer[Claim | str, Confirmation | Turn | None] = Coalescer(
            self._place, max_batch=AT_ONCE, max_pending=MOST_WAITING
        )

    async def send(self, dispatch: Dispatch) -> Outcome:
        try:
            placed = await self._placed(dispatch.claim, dispatch.timeout_seconds * WAITING_SHARE)
        except (LedgerUnavailable, Overloaded) as error:
            # Nothing was written, so this is not a failed attempt.
            return Throttled(f"the log could not be written: {error}", retry_after=1.0)
        if isinstance(placed, Turn):
            self._turns.sent_back(placed.log)
            return Throttled("an earlier notification of this person is not in the log yet", retry_after=TURN_SECONDS)
        if placed is None:
            return self._nobody()
        try:
            written = await _confirmed(placed, min(self._settings.written_seconds, dispatch.timeout_seconds))
        except TimeoutError:
            return self._unconfirmed(placed.user_id)
        finally:
            self._live.hub.release(placed)
            self._call_next(placed.user_id)
        return Sent(str(placed.seq)) if written else self._nobody()

    async def aclose(self) -> None:
        """The hub owns the connections."""

    async def _placed(self, claim: Claim, seconds: float) -> Confirmation | Turn | None:
        """Append to the log, waiting a while for the claim's turn; the Turn itself if it did not come."""
        answer = await self._placing.add(claim)
        if not isinstance(answer, Turn):
            return answer
        try:
            return await self._turn_came(answer, self._now() + seconds)
        except asyncio.CancelledError:
            if answer.placed.done() and (placed := answer.placed.result()) is not None:
                self._live.hub.release(placed)
            raise
        finally:
            self._turns.leave(answer)

    async def _turn_came(self, turn: Turn, until: float) -> Confirmation | Turn | None:
        moved = -1
        # A line that moves is waited for: its readers take what they got before they get more.
        while moved != self._turns.moved(turn.log) and self._now() < until:
            moved = self._turns.moved(turn.log)
            for pause in TURN_PAUSES:
                if await turn.comes_within(pause):
                    return turn.placed.result()
                self._call_next(turn.log)
        return turn

    def _call_next(self, log: str) -> None:
        """Look whose turn it is, once for all who wait: a line goes to the log together."""
        if not self._turns.call(log):
            return
        try:
            self._placing.add(log).add_done_callback(partial(self._called, log))
        except Overloaded:
            self._turns.called(log)

    def _called(self, log: str, answer: "asyncio.Future[object]") -> None:
        # The claims get their answers by their turns. An absent ledger is asked again.
        if not answer.cancelled():
            answer.exception()
        self._turns.called(log)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _nobody(self) -> Outcome:
        """The outcome when the person is not connected; connecting wakes the route at once."""
        if self._live.hub.closing:
            return Throttled("this replica is stopping", 0.0, STOPPING)
        if self._settings.offline == "fail":
            return Unavailable(NOT_CONNECTED, "offline")
        return Throttled(NOT_CONNECTED, retry_after=self._settings.hold_seconds)

    def _unconfirmed(self, log: str) -> Outcome:
        """The outcome without a confirmation: a reader did not take it, or its replica does not answer."""
        if self._settings.offline == "fail" or self._live.hub.here(log):
            return Unavailable("no live connection accepted the notification", "not_written")
        return Throttled("no replica confirmed the delivery", retry_after=UNCONFIRMED_SECONDS)

    async def _place(self, items: Sequence[Claim | str]) -> list[Confirmation | Turn | None]:
        """Append the entries whose turn it is, of people who read at any replica; None for people who do not.

        A text among the items is the name of a log: its line is looked at, and it has no answer of its own.
        """
        hub = self._live.hub
        own = {item.token: item for item in items if not isinstance(item, str)}
        logs = {item if isinstance(item, str) else log_of_claim(item) for item in items}
        elsewhere = await self._live.elsewhere(logs)
        # A claim that waits for its turn goes with the one that it waits for.
        asked = {claim.token: claim for claim in self._turns.waiting(logs)} | own
        read = [claim for claim in asked.values() if log_of_claim(claim) in elsewhere or hub.here(log_of_claim(claim))]
        going = self._turns.admitted(await self._live.ledger.in_turn(read))
        answers: dict[int, Confirmation | Turn] = {}
        placed: list[tuple[Entry, Collection[str]]] = []
        for claim, entry in zip(going, await self._live.ledger.append(going), strict=True):
            others = elsewhere.get(entry.user_id, frozenset())
            # Expect before announcing: the confirmation may come at once.
            answers[claim.token] = confirmation = hub.expect(entry.user_id, entry.seq, {HERE, *others})
            if not self._turns.came(claim, confirmation) and claim.token not in own:
                # The claim has given up meanwhile; its repeat finds its number.
                hub.release(confirmation)
            placed.append((entry, others))
        hub.offer(entry for entry, _ in placed)
        if self._live.relay is not None:
            self._live.relay.announce([(entry, others) for entry, others in placed if others])
        present = {claim.token for claim in read}
        for token, claim in asked.items():
            if token not in present:
                self._turns.came(claim, None)
            elif token not in answers and token in own:
                answers[token] = self._turns.enter(claim)
        await self._wake_sent_back(entry.user_id for entry, _ in placed)
        return [None if isinstance(item, str) else answers.get(item.token) for item in items]

    async def _wake_sent_back(self, logs: Iterable[str]) -> None:
        """What was sent back comes again now, and in its order."""
        again = self._turns.to_wake(logs)
        # Without the ledger they come again after their pause.
        with suppress(LedgerUnavailable):
            await self._live.ledger.wake(again)


async def _confirmed(placed: Confirmation, seconds: float) -> bool:
    """Wait for the confirmation, which exists already if the kernel took the entry at once; raises TimeoutError."""
    if placed.written.done():
        return placed.written.result()
    async with asyncio.timeout(seconds):
        return await placed.written


class NoStreams:
    """The provider of a process that serves no streams: a check of the settings, or one without `[sse]`."""

    async def send(self, dispatch: Dispatch) -> Outcome:
        return Throttled(f"{dispatch.claim.provider}: this process serves no streams; see the [sse] section")

    async def aclose(self) -> None:
        """Nothing is open."""


def create(name: str, settings: Settings, tools: Tools) -> SseProvider | NoStreams:
    return SseProvider(name, settings, tools.live) if isinstance(tools.live, Live) else NoStreams()
