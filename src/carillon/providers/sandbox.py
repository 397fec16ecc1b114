"""A provider that sends nothing: it answers as configured, and keeps the messages that it got."""

import hashlib
import os
from collections import OrderedDict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from carillon.border import in_camel_case
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown, outcome_word
from carillon.domain.ports import Clock
from carillon.providers import Tools

CHANNELS = None
TELLS = frozenset({"delivered", "read", "acknowledged"})
"""It stands in for every vendor: a rehearsal reports over the API."""
_MAX_COUNTED = 10_000

OutcomeWord = Literal["sent", "throttled", "unavailable", "refused", "unknown"]
Seconds = Annotated[float, msgspec.Meta(ge=0.0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Drill(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel", kw_only=True):
    """The sandbox's answer in place of `sent`."""

    outcome: OutcomeWord = "sent"
    times: Count | None = None
    """How many calls of a message get this answer; None means all."""
    delay_seconds: Seconds = 0.0
    """How long the answer takes; a call whose deadline is earlier is Unknown."""
    recipient_gone: bool = False
    retry_after: Seconds | None = None


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """One message that the sandbox got."""

    message_id: str
    notification_id: str
    route_id: str
    channel: str
    recipient_ref: str
    attempt: int
    outcome: str
    at: float
    address: str | None = None
    message: Message | None = None


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The sandbox's answer while no drill runs."""

    outcome: OutcomeWord = "sent"
    delay_seconds: Seconds = 0.0
    fail_times: Count | None = None
    """How many calls of a message get `outcome`; None means all."""
    keep: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 1000
    ledger_path: str | None = None
    """A file to which the sandbox appends one JSON line per accepted message, before it answers."""


class Sandbox:
    """A BatchProvider whose answers come from its settings, from a message's metadata or from a drill."""

    def __init__(self, name: str, settings: Settings, clock: Clock) -> None:
        self.name = name
        self._default = Drill(outcome=settings.outcome, times=settings.fail_times, delay_seconds=settings.delay_seconds)
        self._clock = clock
        self._live: dict[str, Drill] = {}
        self._captured: deque[Captured] = deque(maxlen=settings.keep)
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._accepted = None if settings.ledger_path is None else _AcceptedFile(Path(settings.ledger_path))

    async def send(self, dispatch: Dispatch) -> Outcome:
        outcome, wait = self._answer(dispatch)
        if wait > 0:
            await self._clock.sleep(wait)
        return outcome

    async def send_many(self, dispatches: Sequence[Dispatch]) -> list[Outcome]:
        answers = [self._answer(dispatch) for dispatch in dispatches]
        wait = max((wait for _, wait in answers), default=0.0)
        if wait > 0:
            await self._clock.sleep(wait)
        return [outcome for outcome, _ in answers]

    async def aclose(self) -> None:
        if self._accepted is not None:
            self._accepted.close()

    def drill(self, channel: str, drill: Drill | None) -> None:
        """Start a drill on one channel, or on all with `*`; None ends it."""
        if drill is None:
            self._live.pop(channel, None)
        else:
            self._live[channel] = drill

    def drills(self) -> dict[str, Drill]:
        return dict(self._live)

    def captured(self) -> list[Captured]:
        """The last messages, oldest first."""
        return list(self._captured)

    def _answer(self, dispatch: Dispatch) -> tuple[Outcome, float]:
        claim = dispatch.claim
        try:
            drill = self._drill_for(claim)
        except msgspec.DecodeError as error:
            return Refused(f"metadata.sandbox: {error}", classification="bad_drill"), 0.0
        message_id = message_id_for(claim.idempotency_key)
        wait = drill.delay_seconds
        outcome = _outcome(drill, message_id)
        if wait >= dispatch.timeout_seconds:
            wait = dispatch.timeout_seconds
            outcome = Unknown("the sandbox did not answer in time", classification="timeout")
        self._remember(dispatch, outcome, message_id)
        return outcome, wait

    def _drill_for(self, claim: Claim) -> Drill:
        drill = _own_drill(claim) or self._live.get(claim.channel) or self._live.get("*") or self._default
        if drill.times is not None and self._count(claim) > drill.times:
            return Drill()
        return drill

    def _count(self, claim: Claim) -> int:
        # A deferred route keeps its attempt number, and a new process starts to count at zero: only both counts
        # together say how often this message was tried.
        key = claim.idempotency_key
        count = max(claim.attempt, self._calls.pop(key, 0) + 1)
        self._calls[key] = count
        if len(self._calls) > _MAX_COUNTED:
            self._calls.popitem(last=False)
        return count

    def _remember(self, dispatch: Dispatch, outcome: Outcome, message_id: str) -> None:
        claim = dispatch.claim
        if self._accepted is None and self._captured.maxlen == 0:
            return
        at = self._clock.wall()
        # An unknown outcome stands for a vendor that accepted the message and whose answer was lost.
        if self._accepted is not None and isinstance(outcome, Sent | Unknown):
            self._accepted.append(claim, at)
        self._captured.append(
            Captured(
                message_id=message_id,
                notification_id=claim.notification_id,
                route_id=claim.route_id,
                channel=claim.channel,
                recipient_ref=claim.recipient_ref,
                attempt=claim.attempt,
                outcome=outcome_word(outcome),
                at=at,
                address=claim.address,
                message=dispatch.message,
            )
        )


class _AcceptedFile:
    """The sandbox's record: it has a line for every accepted message, even if the process crashes afterwards."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()

    def append(self, claim: Claim, at: float) -> None:
        line = {
            "id": claim.idempotency_key,
            "notification_id": claim.notification_id,
            "route_id": claim.route_id,
            "attempt": claim.attempt,
            "pid": self._pid,
            "time_us": int(at * 1_000_000),
        }
        # One write with O_APPEND: lines of several processes do not mix.
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class _Marked(msgspec.Struct, frozen=True):
    sandbox: Any = None


_read_mark = msgspec.json.Decoder(_Marked)


def _own_drill(claim: Claim) -> Drill | None:
    text = claim.metadata_json
    if text is None or '"sandbox"' not in text:
        return None
    return msgspec.convert(in_camel_case(_read_mark.decode(text).sandbox, Drill), Drill | None)


def _outcome(drill: Drill, message_id: str) -> Outcome:
    match drill.outcome:
        case "sent":
            return Sent(message_id)
        case "throttled":
            return Throttled("drill: throttled", retry_after=drill.retry_after)
        case "unavailable":
            return Unavailable("drill: unavailable", classification="drill", retry_after=drill.retry_after)
        case "refused":
            return Refused("drill: refused", classification="drill", recipient_gone=drill.recipient_gone)
        case "unknown":
            return Unknown("drill: unknown", classification="drill")


def message_id_for(idempotency_key: str) -> str:
    """The vendor's message id, the same for every repeat of a message."""
    digest = hashlib.sha256(idempotency_key.encode()).hexdigest()
    return f"sandbox-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def create(name: str, settings: Settings, tools: Tools) -> Sandbox:
    return Sandbox(name, settings, tools.clock)
