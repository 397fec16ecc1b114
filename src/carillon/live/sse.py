"""Live streams as a vendor: what is sent is appended to the person's log and written to wherever they read it."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from carillon.coalesce import Coalescer
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.errors import LedgerUnavailable, Overloaded
from carillon.domain.outcomes import Outcome, Sent, Throttled, Unavailable
from carillon.domain.streams import Entry, Presence, StreamLedger, log_of_claim
from carillon.live.hub import HERE, Awaited, Hub
from carillon.live.relay import Relay
from carillon.providers.tools import Tools

CHANNELS = None
AT_ONCE = 500
MOST_WAITING = 20_000
SILENCE_SECONDS = 1.0
"""A replica that died is believed in for a while: what it does not answer for is tried again until it is forgotten."""


TURN_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)
TURN_SECONDS = 1.0
"""Whoever holds what goes first may have died: for longer than the pauses it is waited for outside."""


class NotYet(msgspec.Struct, frozen=True):
    """Something earlier is not in the log."""


NOT_YET = NotYet()


class Live(NamedTuple):
    """What live streams of one process are made of."""

    hub: Hub
    ledger: StreamLedger
    replica: str
    presence: Presence | None = None
    """None where no other process reads this ledger."""
    relay: Relay | None = None


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What becomes of what cannot be written at once."""

    offline: Literal["hold", "fail"] = "hold"
    """Whether a notification waits for somebody who is not connected, or fails."""
    hold_seconds: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    """How long it waits before it looks again by itself; whoever connects is told at once."""
    written_seconds: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    """How long the word that it was written may take."""


class Sse:
    """Satisfies Provider; many are appended in one commit, each waits for the word that it was written."""

    def __init__(self, name: str, settings: Settings, live: Live) -> None:
        self.name = name
        self._settings = settings
        self._live = live
        self._placing: Coalescer[Claim, Awaited | NotYet | None] = Coalescer(
            self._place, max_batch=AT_ONCE, max_pending=MOST_WAITING
        )

    async def send(self, dispatch: Dispatch) -> Outcome:
        try:
            awaited = await self._placed(dispatch.claim)
        except (LedgerUnavailable, Overloaded) as error:
            # Nothing was written to anybody: that is no failed try of this notification.
            return Throttled(f"cannot be put into the log now: {error}", retry_after=1.0)
        if isinstance(awaited, NotYet):
            return Throttled("something earlier goes first", retry_after=TURN_SECONDS)
        if awaited is None:
            return self._nobody()
        try:
            written = await _heard(awaited, min(self._settings.written_seconds, dispatch.timeout_seconds))
        except TimeoutError:
            return self._silence(awaited.user_id)
        finally:
            self._live.hub.let_go(awaited)
        return Sent(str(awaited.seq)) if written else self._nobody()

    async def aclose(self) -> None:
        """Connections are their readers'."""

    async def _placed(self, claim: Claim) -> Awaited | NotYet | None:
        """Its place in the log, once what came before it has one; for a while it waits here."""
        for pause in TURN_PAUSES:
            answer = await self._placing.add(claim)
            if not isinstance(answer, NotYet):
                return answer
            await asyncio.sleep(pause)
        return await self._placing.add(claim)

    def _nobody(self) -> Outcome:
        """Nobody reads, or everybody who did has left: whoever comes is told at once."""
        if self._live.hub.closing:
            return Throttled("this replica is stopping", retry_after=0.0)
        if self._settings.offline == "fail":
            return Unavailable("not connected", "offline")
        return Throttled("not connected", retry_after=self._settings.hold_seconds)

    def _silence(self, log: str) -> Outcome:
        """Somebody reads and did not take it, or reads at a replica that does not answer and may be gone."""
        if self._settings.offline == "fail" or self._live.hub.here(log):
            return Unavailable("no live connection took it", "not_written")
        return Throttled("no replica answered", retry_after=SILENCE_SECONDS)

    async def _place(self, claims: Sequence[Claim]) -> list[Awaited | NotYet | None]:
        """Into the log of everybody who reads anywhere; None for who does not."""
        hub = self._live.hub
        elsewhere = await self._elsewhere({log_of_claim(claim) for claim in claims})
        read = [claim for claim in claims if log_of_claim(claim) in elsewhere or hub.here(log_of_claim(claim))]
        late = await self._live.ledger.ahead(read)
        # Among those that go together the urgent and then the earlier ones are first as well.
        going = sorted((claim for claim in read if claim.key not in late), key=_turn)
        placed: list[tuple[Entry, Collection[str]]] = []
        answers: dict[int, Awaited | NotYet] = {claim.token: NOT_YET for claim in read if claim.key in late}
        for claim, entry in zip(going, await self._live.ledger.append(going), strict=True):
            others = elsewhere.get(entry.user_id, frozenset())
            # Expected before anybody is told: the word may come at once.
            answers[claim.token] = hub.expect(entry.user_id, entry.seq, {HERE, *others})
            placed.append((entry, others))
        hub.offer(entry for entry, _ in placed)
        if self._live.relay is not None:
            self._live.relay.tell([(entry, others) for entry, others in placed if others])
        return [answers.get(claim.token) for claim in claims]

    async def _elsewhere(self, logs: set[str]) -> dict[str, frozenset[str]]:
        if self._live.presence is None:
            return {}
        found = await self._live.presence.where(logs)
        others = {log: replicas - {self._live.replica} for log, replicas in found.items()}
        return {log: replicas for log, replicas in others.items() if replicas}


async def _heard(awaited: Awaited, seconds: float) -> bool:
    """The word that it was written, which is there already where the kernel took it at once; raises TimeoutError."""
    if awaited.word.done():
        return awaited.word.result()
    async with asyncio.timeout(seconds):
        return await awaited.word


def _turn(claim: Claim) -> tuple[int, str]:
    return claim.lane, claim.notification_id


class NoStreams:
    """Stands in where a process serves none: in a look at the settings, or without the section."""

    async def send(self, dispatch: Dispatch) -> Outcome:
        return Throttled(f"{dispatch.claim.provider}: this process serves no streams; see the [sse] section")

    async def aclose(self) -> None:
        """Nothing is held."""


def create(name: str, settings: Settings, tools: Tools) -> Sse | NoStreams:
    return Sse(name, settings, tools.live) if isinstance(tools.live, Live) else NoStreams()
