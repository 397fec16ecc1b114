"""Synchronous delivery: one call within a deadline while the caller waits, and the sweep of calls of dead processes."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar, assert_never

import msgspec

from carillon.domain.claims import Claim, Dispatch, Settlement, Want
from carillon.domain.decide import EXPIRY, candidates, following, suppression_after
from carillon.domain.errors import LedgerUnavailable, Overloaded
from carillon.domain.events import Trouble
from carillon.domain.intents import Intent
from carillon.domain.lanes import Lane
from carillon.domain.notifications import GatedRoute, Status
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.policy import PolicyTable
from carillon.domain.ports import Backlog, Breakers, Clock, Ids, Observer, Provider, UpkeepLedger
from carillon.domain.suppressions import SuppressedRoute, SuppressionRef, SuppressionTerms
from carillon.domain.synchronous import (
    Claimed,
    Code,
    DeliveredNow,
    EnrolSynchronous,
    NotClaimed,
    NotDelivered,
    Repeated,
    Synchronous,
    SynchronousAnswer,
    SynchronousLedger,
    is_use_case,
    timed_out_text,
)
from carillon.domain.targets import Held
from carillon.domain.verdicts import Bury, Finish
from carillon.faultpoint import faultpoint
from carillon.outbound.admission import Admissions
from carillon.outbound.attempt import noted
from carillon.outbound.completing import MailCompleter
from carillon.outbound.settle import Settler
from carillon.outbound.targets import Targets

GRACE_SECONDS = 0.15
"""How long after the deadline the caller still waits for the ledger to have the outcome."""
LOOK_SECONDS = 0.05
CLOSE_SECONDS = 0.05
"""A call that fails this close to its deadline counts as timed out."""

T = TypeVar("T")
_CODES: tuple[Code, ...] = ("DELIVERY_TIMEOUT", "DELIVERY_FAILED")
BATCH = 100
LONGEST_WAIT = 5.0


class SynchronousRules(msgspec.Struct, frozen=True, kw_only=True):
    """A blueprint's rules for synchronous delivery."""

    chains: Mapping[str, Sequence[str]]
    seconds: float
    """From the request's arrival to the provider's answer, rendering and the ledger's commit included."""
    use_cases: Sequence[str] = ()
    slots: int = 200
    strict_receipts: bool = False
    """True: a message has arrived when its vendor says so, and not when the vendor accepts it."""
    policies: PolicyTable
    suppressions: SuppressionTerms = SuppressionTerms()
    unsubscribe: Callable[[Claim], str | None] | None = None
    """Where one click leaves the category of a message; None where no such links are made."""


class SynchronousDelivery:
    """Delivers while the caller waits; it uses no queue and none of the workers' slots."""

    def __init__(
        self,
        *,
        enrol: EnrolSynchronous,
        providers: Mapping[str, Provider],
        breakers: Breakers,
        settler: Settler,
        stories: UpkeepLedger,
        rules: SynchronousRules,
        clock: Clock,
        ids: Ids,
        targets: Targets | None = None,
        completer: MailCompleter | None = None,
    ) -> None:
        self._completer = completer
        self._enrol = enrol
        self._providers = providers
        self._admissions = Admissions(providers, breakers, targets, clock)
        self._settler = settler
        self._stories = stories
        self._rules = rules
        self._clock = clock
        self._ids = ids
        self._tasks: set[asyncio.Task[Any]] = set()
        self._busy = 0

    def door(self) -> Synchronous:
        """What a door calls."""
        return Synchronous(self.wanted, self.began, self.deliver)

    def wanted(self, template_key: str) -> bool:
        return is_use_case(template_key, self._rules.use_cases)

    def began(self) -> float:
        return self._clock.monotonic()

    async def deliver(self, intent: Intent, began: float) -> SynchronousAnswer:
        if self._busy >= self._rules.slots:
            raise Overloaded("too many callers wait for their delivery")
        self._busy += 1
        try:
            # A caller who disconnects cancels nothing: the delivery goes on and its outcome is written.
            return await asyncio.shield(self._spawn(self._deliver(intent, began + self._rules.seconds)))
        finally:
            self._busy -= 1

    async def drain(self, seconds: float) -> None:
        """Wait for the deliveries in flight and their outcomes; wait at most `seconds` for an absent ledger."""
        giving_up = asyncio.get_running_loop().call_later(seconds, self._settler.give_up)
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            giving_up.cancel()

    async def _deliver(self, intent: Intent, deadline: float) -> SynchronousAnswer:
        notification_id = intent.notification_id or self._ids()
        intent = msgspec.structs.replace(intent, notification_id=notification_id)
        try:
            async with asyncio.timeout(self._left(deadline)):
                holding = await self._enrol(intent)
        except TimeoutError:
            # If the ledger writes it late, nobody sends it: its lease expires and the sweep dead-letters it.
            return self._timed_out(notification_id)
        match holding:
            case Claimed():
                return await self._send(holding.claim, deadline)
            case Repeated():
                return await self._replay(holding.notification_id, intent.tenant_id, deadline)
            case NotClaimed():
                return NotDelivered(
                    notification_id=holding.notification_id,
                    code="DELIVERY_FAILED",
                    message=holding.reason,
                    suppressed=holding.suppressed,
                    gated=holding.gated,
                )
            case _:
                assert_never(holding)

    async def _send(self, claim: Claim, deadline: float) -> SynchronousAnswer:
        began = self._clock.monotonic()
        if claim.category is not None and self._rules.unsubscribe is not None:
            claim.unsubscribe_url = self._rules.unsubscribe(claim)
        provider: str | None = None
        outcome: Outcome = Unavailable(f"circuit breaker open: {claim.provider}", "circuit_open")
        try:
            async with asyncio.timeout(self._left(deadline)):
                failed = await self._completed(claim, deadline)
                chosen = None if failed is not None else await self._choose(claim)
                if failed is not None:
                    outcome = failed
                elif isinstance(chosen, Held) and chosen.paused is not None:
                    outcome = Unavailable(str(chosen.paused), "paused")
                elif isinstance(chosen, Held):
                    outcome = Throttled(f"too many calls: no turn at {chosen.target} in time", chosen.seconds)
                elif _has_expired(claim, self._clock.monotonic() - began):
                    outcome = Refused(EXPIRY.reason, EXPIRY.gate)
                elif chosen is not None:
                    provider = chosen
                    faultpoint("before_send")
                    dispatch = Dispatch(claim, claim.message(), self._left(deadline))
                    outcome = await self._providers[provider].send(dispatch)
        except TimeoutError:
            outcome = Unknown("the call outlived its deadline", "timeout")
        except Exception as error:  # noqa: BLE001 - a provider's bug must end in its own route's history
            outcome = Unknown(f"provider raised {type(error).__name__}: {error}", "provider_error")
        faultpoint("after_provider_ok")
        answer = self._answer(claim, outcome, deadline)
        took = (self._clock.monotonic() - began) * 1000
        settlement = self._settlement(claim, provider, outcome, answer, duration_ms=took)
        writing = self._spawn(self._write(settlement, provider, outcome))
        await asyncio.wait({writing}, timeout=max(GRACE_SECONDS, self._left(deadline)))
        if isinstance(answer, DeliveredNow) and claim.intent_key is not None and writing.done():
            return await self._as_stored(answer)
        return answer

    async def _completed(self, claim: Claim, deadline: float) -> Outcome | None:
        """The outcome of an email whose files cannot be fetched."""
        if self._completer is None or not claim.to_complete():
            return None
        return await self._completer.complete(claim, self._left(deadline))

    async def _as_stored(self, answer: DeliveredNow) -> DeliveredNow:
        """The answer with the ledger's time, so that a repeat under the same key gets the same answer."""
        try:
            story = await self._stories.story(answer.notification_id, None)
        except LedgerUnavailable:
            return answer
        at = story.routes[0]["published_at"] if story is not None and story.routes else None
        return answer if at is None else msgspec.structs.replace(answer, at_ms=at)

    async def _choose(self, claim: Claim) -> str | Held | None:
        """The first provider whose breaker admits a call; None when all refuse; a Held for a rate or a pause."""
        for name in candidates(self._rules.chains.get(claim.channel, ()), claim.provider):
            if name not in self._providers:
                continue
            said = await self._admissions.admit(name, claim)
            if not isinstance(said, Held):
                if said > 0.0:
                    await self._clock.sleep(said)
                return name
            if said.rate:
                return said
        return None

    def _answer(self, claim: Claim, outcome: Outcome, deadline: float) -> SynchronousAnswer:
        if isinstance(outcome, Sent):
            return DeliveredNow(
                notification_id=claim.notification_id,
                at_ms=self._clock.wall() * 1000,
                arrived=not self._rules.strict_receipts,
                provider_message_id=outcome.message_id,
            )
        if isinstance(outcome, Unknown | Unavailable):
            late = outcome.classification == "timeout" or self._left(deadline) <= CLOSE_SECONDS
            if late:
                return self._timed_out(claim.notification_id)
        return NotDelivered(notification_id=claim.notification_id, code="DELIVERY_FAILED", message=outcome.error)

    async def _write(self, settlement: Settlement, provider: str | None, outcome: Outcome) -> None:
        await self._settler.settle(settlement)
        if provider is not None:
            took = 0.0 if settlement.note is None else settlement.note.duration_ms
            await self._admissions.record(provider, [(settlement.claim, outcome)], took)

    async def _replay(self, notification_id: str, tenant_id: str | None, deadline: float) -> SynchronousAnswer:
        """The outcome of the first request with this key; waits for it until the deadline."""
        while True:
            story = await self._stories.story(notification_id, tenant_id)
            route = story.routes[0] if story is not None and story.routes else None
            if route is not None and route["status"] == Status.PUBLISHED:
                reported = route["delivered_at"] if self._rules.strict_receipts else None
                return DeliveredNow(
                    notification_id=notification_id,
                    at_ms=reported or route["published_at"],
                    arrived=reported is not None or not self._rules.strict_receipts,
                    provider_message_id=route["provider_message_id"],
                    replayed=True,
                )
            if route is not None and route["status"] in {Status.DEAD_LETTER, Status.SKIPPED}:
                said = str(route["last_error_message"])
                known: list[Code] = [code for code in _CODES if code == route["last_error_classification"]]
                code = known[0] if known else "DELIVERY_FAILED"
                return NotDelivered(
                    notification_id=notification_id,
                    code=code,
                    message=said.removeprefix(f"{code}: "),
                    replayed=True,
                    suppressed=_suppressed(route),
                    gated=_gated(route),
                )
            if self._left(deadline) <= 0.0:
                return msgspec.structs.replace(self._timed_out(notification_id), replayed=True)
            await self._clock.sleep(LOOK_SECONDS)

    def _settlement(
        self, claim: Claim, provider: str | None, outcome: Outcome, answer: SynchronousAnswer, *, duration_ms: float
    ) -> Settlement:
        note = None if provider is None else noted(provider, outcome, duration_ms)
        if isinstance(answer, DeliveredNow):
            return Settlement(claim=claim, verdict=Finish(), note=note)
        if isinstance(outcome, Refused) and outcome.classification == EXPIRY.gate:
            return Settlement(claim=claim, verdict=EXPIRY)
        rules = self._rules
        # No caller waits for a second provider, so only the last of the chain condemns an address.
        left = following(rules.chains.get(claim.channel, ()), provider or claim.provider)
        condemned = suppression_after(claim, outcome, rules.suppressions, rules.policies.get(claim.policy), left)
        verdict = Bury(answer.code, f"{answer.code}: {answer.message}")
        return Settlement(claim=claim, verdict=verdict, note=note, suppression=condemned)

    def _timed_out(self, notification_id: str) -> NotDelivered:
        text = timed_out_text(self._rules.seconds)
        return NotDelivered(notification_id=notification_id, code="DELIVERY_TIMEOUT", message=text)

    def _left(self, deadline: float) -> float:
        return max(0.0, deadline - self._clock.monotonic())

    def _spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _suppressed(route: Mapping[str, Any]) -> tuple[SuppressedRoute, ...]:
    if route["status"] != Status.SKIPPED or route["suppression_id"] is None:
        return ()
    held_by = SuppressionRef(route["suppression_id"], route["suppression_kind"], route["suppressed_until"])
    return (SuppressedRoute(route["route_id"], route["channel"], held_by),)


def _has_expired(claim: Claim, seconds: float) -> bool:
    """Whether the notification has expired so many seconds after its claim."""
    return claim.expires_in is not None and claim.expires_in <= seconds


def _gated(route: Mapping[str, Any]) -> tuple[GatedRoute, ...]:
    if route["status"] != Status.SKIPPED or route["suppression_id"] is not None:
        return ()
    gate, because = route["last_error_classification"], route["last_error_message"]
    return (GatedRoute(route["route_id"], route["channel"], gate, because),)


class SynchronousSweep:
    """Sweeps the lane without workers: expired leases become dead letters, redriven routes move to lane `instead`."""

    def __init__(
        self,
        *,
        ledger: SynchronousLedger,
        backlog: Backlog,
        settler: Settler,
        lane: Lane,
        instead: Lane,
        providers: Iterable[str],
        clock: Clock,
        observer: Observer,
        owner: str,
        every_seconds: float = 1.0,
    ) -> None:
        self._ledger = ledger
        self._backlog = backlog
        self._settler = settler
        self._lane = lane
        self._instead = instead
        self._wants = [Want(lane.rank, provider, BATCH) for provider in sorted(set(providers))]
        self._clock = clock
        self._observe = observer
        self._owner = owner
        self._every = every_seconds

    async def run(self) -> None:
        """Sweep until cancelled."""
        wait = self._every
        while True:
            pause = self._every
            try:
                await self.sweep()
                wait = self._every
            except LedgerUnavailable as error:
                pause, wait = wait, min(wait * 2, LONGEST_WAIT)
                self._observe(Trouble(where="abandoned", error=str(error), retry_in_seconds=pause))
            await self._clock.sleep(pause)

    async def sweep(self) -> int:
        """Dead-letter the deliveries that no caller waits for; returns how many."""
        # Redriven routes first: they are due as well, and must not be taken for abandoned ones.
        await self._ledger.queue_unclaimed(self._lane.rank, self._instead.rank)
        claims = await self._backlog.claim(self._wants, BATCH, self._owner)
        await self._settler.settle_many([self._dead_letter(claim) for claim in claims])
        return len(claims)

    def _dead_letter(self, claim: Claim) -> Settlement:
        lost = Unknown("the process that delivered it died", "abandoned")
        text = timed_out_text(self._lane.timeout_seconds or 0.0)
        return Settlement(
            claim=claim,
            verdict=Bury("DELIVERY_TIMEOUT", f"DELIVERY_TIMEOUT: {text}"),
            note=noted(claim.provider, lost, 0.0),
        )
