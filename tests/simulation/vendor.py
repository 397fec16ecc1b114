"""A vendor of a simulated world: it answers by dice, and notes what it accepted, from whom and when."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b

import msgspec

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from tests.simulation.scheduler import OWNER

REFUSED_SECONDS = 0.02


class Temper(msgspec.Struct, frozen=True, kw_only=True):
    """How often a vendor's answers are what."""

    unavailable: float = 0.0
    throttled: float = 0.0
    silent: float = 0.0
    """It accepts the message and does not answer."""
    refused: float = 0.0
    median_seconds: float = 0.15
    outages: tuple[tuple[float, float], ...] = ()
    """From when to when it is away."""


class VendorLedger:
    """What all vendors of a world have seen; it imports nothing of the engine's own accounts."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        self.silent: Counter[str] = Counter()
        """Accepted without an answer: a policy that retries may repeat these."""
        self.refused: set[str] = set()
        self.calls = 0
        self.wrong: list[str] = []
        self.digest = blake2b(digest_size=16)

    def note(self, key: str, at: float, word: str) -> None:
        """Take one call into the accounts."""
        self.calls += 1
        if word in ("sent", "silent"):
            self.accepted[key] += 1
            if word == "silent":
                self.silent[key] += 1
        elif word == "refused":
            self.refused.add(key)
        self.digest.update(f"{at:.6f} {key} {word}\n".encode())


class Vendor:
    """Satisfies Provider; `may` says what is wrong with a call that must not be made."""

    def __init__(
        self,
        ledger: VendorLedger,
        temper: Temper,
        dice: random.Random,
        may: Callable[[Dispatch], str | None],
        called: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._temper = temper
        self._dice = dice
        self._may = may
        self._called = called

    async def send(self, dispatch: Dispatch) -> Outcome:
        outcome, seconds = self._answer(dispatch)
        await asyncio.sleep(seconds)
        return outcome

    async def aclose(self) -> None:
        """Nothing is held."""

    def _answer(self, dispatch: Dispatch) -> tuple[Outcome, float]:
        owner = OWNER.get()
        if owner is not None and owner.dead:
            return Unavailable("the dead reach nobody"), REFUSED_SECONDS
        self._called()
        key, at = dispatch.claim.idempotency_key, asyncio.get_running_loop().time()
        wrong = self._may(dispatch)
        if wrong is not None:
            self._ledger.wrong.append(f"{at:.3f} {key}: {wrong}")
        word, outcome, seconds = self._drawn(at, dispatch.timeout_seconds)
        self._ledger.note(key, at, word)
        return outcome, seconds

    def _drawn(self, at: float, limit: float) -> tuple[str, Outcome, float]:
        temper, drawn = self._temper, self._dice.random()
        seconds = temper.median_seconds * (0.25 + 1.5 * self._dice.random())
        if any(begins <= at < ends for begins, ends in temper.outages):
            return "away", Unavailable("connection refused", "connect"), REFUSED_SECONDS
        for word, share in (
            ("unavailable", temper.unavailable),
            ("throttled", temper.throttled),
            ("silent", temper.silent),
            ("refused", temper.refused),
        ):
            if drawn < share:
                return word, *_OTHERWISE[word](seconds, limit)
            drawn -= share
        return "sent", Sent("accepted"), seconds


_OTHERWISE: dict[str, Callable[[float, float], tuple[Outcome, float]]] = {
    "unavailable": lambda seconds, _: (Unavailable("503", "server_error"), seconds),
    "throttled": lambda seconds, _: (Throttled("429", retry_after=1.0), seconds),
    "silent": lambda _, limit: (Unknown("no answer in time", "timeout"), limit),
    "refused": lambda seconds, _: (Refused("400", "invalid"), seconds),
}


class StartingVendor(Vendor):
    """Satisfies StartingProvider: many calls without a task for each."""

    def start(self, dispatch: Dispatch, tell: Callable[[Outcome], None]) -> Callable[[], None]:
        outcome, seconds = self._answer(dispatch)
        return asyncio.get_running_loop().call_later(seconds, tell, outcome).cancel


class BatchVendor(Vendor):
    """Satisfies BatchProvider: one answer time for many messages."""

    async def send_many(self, dispatches: Sequence[Dispatch]) -> list[Outcome]:
        answers = [self._answer(dispatch) for dispatch in dispatches]
        await asyncio.sleep(max(seconds for _, seconds in answers))
        return [outcome for outcome, _ in answers]
