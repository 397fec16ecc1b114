"""The sse provider: it appends a notification to the person's log and writes it to their live connections."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from carillon.coalesce import Coalescer
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.errors import LedgerUnavailable, Overloaded
from carillon.domain.outcomes import STOPPING, Outcome, Sent, Throttled, Unavailable
from carillon.domain.streams import Entry, Presence, StreamLedger, log_of_claim
from carillon.live.hub import HERE, Confirmation, Hub
from carillon.live.relay import ReplicaRelay
from carillon.providers.tools import Tools

CHANNELS = None
AT_ONCE = 500
MOST_WAITING = 20_000
UNCONFIRMED_SECONDS = 1.0
"""The retry pause when no replica confirms: a replica that died counts as present until it expires."""

TURN_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)
TURN_SECONDS = 1.0
"""The retry pause when an earlier entry is still missing after `TURN_PAUSES`: its worker may have died."""


class OutOfTurn(msgspec.Struct, frozen=True):
    """An earlier notification is not in the log yet."""


OUT_OF_TURN = OutOfTurn()


class Live(NamedTuple):
    """The parts of live streams in one process."""

    hub: Hub
    ledger: StreamLedger
    replica: str
    presence: Presence | None = None
    """None if only this process uses the ledger."""
    relay: ReplicaRelay | None = None


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
        self._placing: Coalescer[Claim, Confirmation | OutOfTurn | None] = Coalescer(
            self._place, max_batch=AT_ONCE, max_pending=MOST_WAITING
        )

    async def send(self, dispatch: Dispatch) -> Outcome:
        try:
            placed = await self._placed(dispatch.claim)
        except (LedgerUnavailable, Overloaded) as error:
            # Nothing was written, so this is not a failed attempt.
            return Throttled(f"the log could not be written: {error}", retry_after=1.0)
        if isinstance(placed, OutOfTurn):
            return Throttled("an earlier notification of this person is not in the log yet", retry_after=TURN_SECONDS)
        if placed is None:
            return self._nobody()
        try:
            written = await _confirmed(placed, min(self._settings.written_seconds, dispatch.timeout_seconds))
        except TimeoutError:
            return self._unconfirmed(placed.user_id)
        finally:
            self._live.hub.release(placed)
        return Sent(str(placed.seq)) if written else self._nobody()

    async def aclose(self) -> None:
        """The hub owns the connections."""

    async def _placed(self, claim: Claim) -> Confirmation | OutOfTurn | None:
        """Append to the log, waiting a while for earlier notifications to be appended first."""
        for pause in TURN_PAUSES:
            answer = await self._placing.add(claim)
            if not isinstance(answer, OutOfTurn):
                return answer
            await asyncio.sleep(pause)
        return await self._placing.add(claim)

    def _nobody(self) -> Outcome:
        """The outcome when the person is not connected; connecting wakes the route at once."""
        if self._live.hub.closing:
            return Throttled("this replica is stopping", 0.0, STOPPING)
        if self._settings.offline == "fail":
            return Unavailable("not connected", "offline")
        return Throttled("not connected", retry_after=self._settings.hold_seconds)

    def _unconfirmed(self, log: str) -> Outcome:
        """The outcome without a confirmation: a reader did not take it, or its replica does not answer."""
        if self._settings.offline == "fail" or self._live.hub.here(log):
            return Unavailable("no live connection accepted the notification", "not_written")
        return Throttled("no replica confirmed the delivery", retry_after=UNCONFIRMED_SECONDS)

    async def _place(self, claims: Sequence[Claim]) -> list[Confirmation | OutOfTurn | None]:
        """Append the entries of people who read at any replica; None for the others."""
        hub = self._live.hub
        elsewhere = await self._elsewhere({log_of_claim(claim) for claim in claims})
        read = [claim for claim in claims if log_of_claim(claim) in elsewhere or hub.here(log_of_claim(claim))]
        late = await self._live.ledger.ahead(read)
        # In one batch too, urgent notifications come first, then earlier ones.
        going = sorted((claim for claim in read if claim.key not in late), key=_turn)
        placed: list[tuple[Entry, Collection[str]]] = []
        answers: dict[int, Confirmation | OutOfTurn] = {claim.token: OUT_OF_TURN for claim in read if claim.key in late}
        for claim, entry in zip(going, await self._live.ledger.append(going), strict=True):
            others = elsewhere.get(entry.user_id, frozenset())
            # Expect before announcing: the confirmation may come at once.
            answers[claim.token] = hub.expect(entry.user_id, entry.seq, {HERE, *others})
            placed.append((entry, others))
        hub.offer(entry for entry, _ in placed)
        if self._live.relay is not None:
            self._live.relay.announce([(entry, others) for entry, others in placed if others])
        return [answers.get(claim.token) for claim in claims]

    async def _elsewhere(self, logs: set[str]) -> dict[str, frozenset[str]]:
        if self._live.presence is None:
            return {}
        found = await self._live.presence.where(logs)
        others = {log: replicas - {self._live.replica} for log, replicas in found.items()}
        return {log: replicas for log, replicas in others.items() if replicas}


async def _confirmed(placed: Confirmation, seconds: float) -> bool:
    """Wait for the confirmation, which exists already if the kernel took the entry at once; raises TimeoutError."""
    if placed.written.done():
        return placed.written.result()
    async with asyncio.timeout(seconds):
        return await placed.written


def _turn(claim: Claim) -> tuple[int, str]:
    return claim.lane, claim.notification_id


class NoStreams:
    """The provider of a process that serves no streams: a check of the settings, or one without `[sse]`."""

    async def send(self, dispatch: Dispatch) -> Outcome:
        return Throttled(f"{dispatch.claim.provider}: this process serves no streams; see the [sse] section")

    async def aclose(self) -> None:
        """Nothing is open."""


def create(name: str, settings: Settings, tools: Tools) -> SseProvider | NoStreams:
    return SseProvider(name, settings, tools.live) if isinstance(tools.live, Live) else NoStreams()
