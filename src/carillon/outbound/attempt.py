"""One attempt: the gates before the call, the call, the decision after it."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from carillon.domain.breaker import Admission, State
from carillon.domain.claims import AttemptNote, Claim, Dispatch, Settlement
from carillon.domain.decide import Standing, candidates, decide, following
from carillon.domain.lanes import Lanes
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown, outcome_word
from carillon.domain.policy import PolicyTable
from carillon.domain.ports import BatchProvider, Breakers, Clock, Dice, Preparer, Provider, StartingProvider
from carillon.domain.verdicts import FINISH, Bury, Defer, Retry, Verdict
from carillon.outbound.admitting import admitted
from carillon.outbound.calling import Calling, Ended
from carillon.outbound.leases import Leases

OPEN_PAUSE_SECONDS = 1.0


class AttemptRules(msgspec.Struct, frozen=True):
    """What a blueprint says about attempts."""

    chains: Mapping[str, Sequence[str]]
    """Channel to its providers in the order of failover."""
    policies: PolicyTable
    lanes: Lanes
    half_open_wait_seconds: float | None = None
    """How long a message waits for another's probe before it is as if the breaker were open; None is for ever."""
    end_on_open: bool = False
    """True ends the retries of a message whose own failure opened the breaker."""
    throttled_fails: bool = False
    """True lets a breaker count throttled answers as failures."""
    outlive_leases: bool = False
    """True bounds a call by its policy alone: its lease is renewed while it runs, and the call cancelled without it."""
    give_back: bool = False
    """True gives back, unspent, what the end of the process cut off: a repeat would be recognised."""


class Attempts:
    """Turns claims into settlements; never raises for what a provider or a message did."""

    def __init__(
        self,
        *,
        providers: Mapping[str, Provider],
        breakers: Breakers,
        leases: Leases,
        rules: AttemptRules,
        clock: Clock,
        dice: Dice,
        preparer: Preparer | None = None,
    ) -> None:
        self._preparer = preparer
        self._providers = providers
        self._breakers = breakers
        self._leases = leases
        self._rules = rules
        self._clock = clock
        self._dice = dice
        self._next = {
            (channel, name): following(chain, name) for channel, chain in rules.chains.items() for name in chain
        }
        self._calling = Calling(give_back=rules.give_back)
        self._many = frozenset(name for name, provider in providers.items() if isinstance(provider, BatchProvider))
        self._starting = {name: one for name, one in providers.items() if isinstance(one, StartingProvider)}
        self._timeouts: dict[tuple[str, int], float] = {}

    def cut_off(self) -> None:
        """The time for draining is over: a cancelled call is an unknown outcome, not a cancelled task."""
        self._calling.cutting_off = True

    def takes_many(self, claim: Claim) -> bool:
        """Whether the claim's provider would rather have a batch; what is still to be prepared goes alone."""
        return self._preparer is None and claim.provider in self._many

    def goes_side_by_side(self, claim: Claim) -> bool:
        """Whether many calls of the claim's provider can be under way without a task for each."""
        return self._preparer is None and claim.provider in self._starting

    async def attempt(self, claim: Claim) -> Settlement:
        """Attempt one route."""
        gated = self._gate(claim)
        if gated is not None:
            return gated
        # A lease that is over is noticed before a breaker's probe right is taken for nothing.
        dispatch = self._dispatch(claim)
        if dispatch is not None and self._preparer is not None and claim.message_json is None:
            prepared = await self._preparer.prepare(claim)
            if not isinstance(prepared, Message):
                return Settlement(claim=claim, verdict=prepared)
            # What was made once is kept for every attempt that follows.
            claim.message_json = msgspec.json.encode(prepared).decode()
            dispatch = self._dispatch(claim)
        provider = None if dispatch is None else await self._choose(claim)
        if dispatch is not None and provider is None:
            return await self._all_open(claim)
        if dispatch is None or provider is None or self._leases.seconds_left(claim) <= 0.0:
            return Settlement(claim=claim, verdict=Defer(0.0))
        began = self._clock.monotonic()
        outcome = await self._calling.one(self._providers[provider], dispatch)
        return await self._conclude(claim, provider, outcome, self._since(began))

    async def attempt_many(self, claims: Sequence[Claim]) -> list[Settlement]:
        """Attempt many routes of one provider in one call, where the provider can."""
        ready, alone = await self.line_up(claims)
        settlements = {one.claim.token: one for one in await self._send_batch(ready)} if ready else {}
        for claim in alone:
            settlements[claim.token] = await self.attempt(claim)
        return [settlements[claim.token] for claim in claims]

    async def _send_batch(self, ready: Sequence[Dispatch]) -> list[Settlement]:
        began = self._clock.monotonic()
        outcomes = await self._calling.many(self._providers[ready[0].claim.provider], ready)
        return await self.conclude(list(zip(ready, outcomes, strict=True)), self._since(began))

    async def line_up(self, claims: Sequence[Claim]) -> tuple[list[Dispatch], list[Claim]]:
        """Calls of one provider that may set out together, and the claims that must find their way alone."""
        provider = claims[0].provider
        plain: list[Claim] = []
        alone: list[Claim] = []
        for claim, left in zip(claims, self._leases.all_seconds_left(claims), strict=True):
            usual = left > 0.0 and (claim.channel, provider) in self._next and self._gate(claim) is None
            (plain if usual else alone).append(claim)
        admission = await self._breakers.admit(provider) if plain else Admission.STOP
        if admission is not Admission.GO:
            may = 1 if admission is Admission.PROBE else 0
            plain, alone = plain[:may], alone + plain[may:]
        ready: list[Dispatch] = []
        for claim, left in zip(plain, self._leases.all_seconds_left(plain), strict=True):
            if left > 0.0:
                ready.append(self._call_within(claim, left))
            else:
                alone.append(claim)
        return ready, alone

    async def call_each(self, ready: Sequence[Dispatch], ended: Callable[[list[Ended], float], None]) -> None:
        """Call what was lined up; `ended` hears which calls have ended, and after how many milliseconds."""
        began = self._clock.monotonic()
        provider = self._starting[ready[0].claim.provider]
        await self._calling.each(provider, ready, lambda landed: ended(landed, self._since(began)))

    def _gate(self, claim: Claim) -> Settlement | None:
        """What keeps a claim from being called at all."""
        if claim.suppressed:
            return Settlement(claim=claim, verdict=Bury("suppressed", "the address was declared dead"))
        if claim.attempt > claim.max_attempts:
            reason = f"abandoned by a worker {claim.attempt - 1} times without an outcome"
            return Settlement(claim=claim, verdict=Bury("crash_loop", reason))
        if claim.abandoned and self._rules.policies.get(claim.policy).on_unknown in ("wait_for_receipt", "bury"):
            # The worker before us died holding this route: its message may be out, and this class must not repeat it.
            lost = Unknown("a worker died holding this route", "abandoned")
            note = AttemptNote(
                provider=claim.provider,
                outcome="unknown",
                duration_ms=0.0,
                classification="abandoned",
                error=lost.error,
            )
            return Settlement(claim=claim, verdict=self._decide(claim, claim.provider, lost), note=note)
        return None

    async def _choose(self, claim: Claim) -> str | None:
        if claim.forced and claim.provider in self._providers:
            return claim.provider
        for provider in candidates(self._rules.chains.get(claim.channel, ()), claim.provider):
            if provider in self._providers and await self._admitted(provider):
                return provider
        return None

    async def _admitted(self, provider: str) -> bool:
        patience = self._rules.half_open_wait_seconds or 0.0
        return await admitted(self._breakers, provider, self._clock, patience)

    async def _all_open(self, claim: Claim) -> Settlement:
        policy = self._rules.policies.get(claim.policy)
        states = await self._breakers.states()
        chain = self._rules.chains.get(claim.channel, ())
        # While another's probe is under way, or has just closed the breaker, nothing is decided: a message must not die
        # of asking a moment too early.
        waits = self._rules.half_open_wait_seconds is None
        known = [states.get(provider) for provider in chain if provider in self._providers]
        healing = waits and any(state in (State.HALF_OPEN, State.CLOSED) for state in known)
        if policy.on_open == "bury" and not healing:
            return Settlement(claim=claim, verdict=Bury("circuit_open", f"circuit breaker open: {claim.provider}"))
        if claim.age_seconds >= policy.give_up_after_seconds:
            return Settlement(claim=claim, verdict=Bury("expired", "every provider stayed unavailable for too long"))
        return Settlement(claim=claim, verdict=Defer(OPEN_PAUSE_SECONDS * (1 + self._dice())))

    def _dispatch(self, claim: Claim) -> Dispatch | None:
        """The call, bounded by policy and lease; None when the lease ran out while this process was not looking."""
        left = self._leases.seconds_left(claim)
        return None if left <= 0.0 else self._call_within(claim, left)

    def _call_within(self, claim: Claim, left: float) -> Dispatch:
        timeout = self._timeouts.get((claim.policy, claim.lane))
        if timeout is None:
            timeout = self._rules.policies.timeout(claim.policy, self._rules.lanes.by_rank(claim.lane))
            self._timeouts[claim.policy, claim.lane] = timeout
        return Dispatch(claim, claim.message(), timeout if self._rules.outlive_leases else min(timeout, left))

    def _since(self, began: float) -> float:
        return (self._clock.monotonic() - began) * 1000

    async def conclude(self, ended: Sequence[Ended], took: float) -> list[Settlement]:
        """What becomes of calls of one provider that ended together, in the order in which they did."""
        provider = ended[0][0].claim.provider
        settlements: list[Settlement] = []
        well = False
        for dispatch, outcome in ended:
            if not isinstance(outcome, Sent):
                settlements.append(await self._conclude(dispatch.claim, provider, outcome, took))
            else:
                # A breaker counts failures in a row: the second of two successes tells it nothing.
                if not well:
                    await self._breakers.record(provider, ok=True)
                note = noted(provider, outcome, took)
                settlements.append(Settlement(claim=dispatch.claim, verdict=FINISH, note=note))
            well = isinstance(outcome, Sent)
        return settlements

    async def _conclude(self, claim: Claim, provider: str, outcome: Outcome, took: float) -> Settlement:
        if isinstance(outcome, Sent):
            await self._breakers.record(provider, ok=True)
            return Settlement(claim=claim, verdict=FINISH, note=noted(provider, outcome, took))
        throttled = self._rules.throttled_fails and isinstance(outcome, Throttled)
        await self._breakers.record(provider, ok=not (throttled or isinstance(outcome, Unavailable | Unknown)))
        note = noted(provider, outcome, took)
        gone = isinstance(outcome, Refused) and outcome.recipient_gone
        verdict = self._decide(claim, provider, outcome)
        if self._rules.end_on_open and isinstance(verdict, Retry):
            verdict = await self._unless_opened(claim, verdict)
        return Settlement(claim=claim, verdict=verdict, note=note, suppress=gone)

    async def _unless_opened(self, claim: Claim, verdict: Retry) -> Verdict:
        """There is no use in waiting for a retry that an open breaker will not let through."""
        policy, states = self._rules.policies.get(claim.policy), await self._breakers.states()
        if policy.on_open == "bury" and states.get(claim.provider) is State.OPEN:
            return Bury("circuit_open", f"circuit breaker open: {claim.provider}")
        return verdict

    def _decide(self, claim: Claim, provider: str, outcome: Outcome) -> Verdict:
        standing = Standing(
            attempt=claim.attempt,
            attempts_here=claim.attempt - max(claim.attempts_before, 0) if provider == claim.provider else 1,
            max_attempts=claim.max_attempts,
            age_seconds=claim.age_seconds,
            next_provider=self._next.get((claim.channel, provider)),
            dice=self._dice(),
        )
        return decide(outcome, self._rules.policies.get(claim.policy), standing)


def noted(provider: str, outcome: Outcome, duration_ms: float) -> AttemptNote:
    """What is written down of a call that was made."""
    if isinstance(outcome, Sent):
        return AttemptNote(
            provider=provider, outcome="sent", duration_ms=duration_ms, provider_message_id=outcome.message_id
        )
    return AttemptNote(
        provider=provider,
        outcome=outcome_word(outcome),
        duration_ms=duration_ms,
        classification="throttled" if isinstance(outcome, Throttled) else outcome.classification,
        error=outcome.error,
    )
