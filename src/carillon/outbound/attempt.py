"""One attempt: the gates before the call, the call, the decision after it."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from carillon.domain.breaker import Admission
from carillon.domain.claims import AttemptNote, Claim, Dispatch, Settlement
from carillon.domain.decide import Standing, decide
from carillon.domain.lanes import Lanes
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown, outcome_word
from carillon.domain.policy import PolicyTable
from carillon.domain.ports import BatchProvider, Breakers, Clock, Dice, Provider
from carillon.domain.verdicts import Bury, Defer, Verdict
from carillon.faultpoint import faultpoint
from carillon.outbound.leases import Leases
from carillon.outbound.selection import candidates, following

OPEN_PAUSE_SECONDS = 1.0
BACKSTOP_SECONDS = 1.0


class AttemptRules(msgspec.Struct, frozen=True):
    """What a blueprint says about attempts."""

    chains: Mapping[str, Sequence[str]]
    """Channel to its providers in the order of failover."""
    policies: PolicyTable
    lanes: Lanes


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
    ) -> None:
        self._providers = providers
        self._breakers = breakers
        self._leases = leases
        self._rules = rules
        self._clock = clock
        self._dice = dice
        self._next = {
            (channel, name): following(chain, name) for channel, chain in rules.chains.items() for name in chain
        }
        self.cutting_off = False
        """Set when the time for draining is over: a cancelled call is then an unknown outcome, not a cancelled task."""

    def takes_many(self, claim: Claim) -> bool:
        """Whether the claim's provider would rather have a batch."""
        return hasattr(self._providers.get(claim.provider), "send_many")

    async def attempt(self, claim: Claim) -> Settlement:
        """Attempt one route."""
        gated = self._gate(claim)
        if gated is not None:
            return gated
        # A lease that is over is noticed before a breaker's probe right is taken for nothing.
        dispatch = self._dispatch(claim)
        provider = None if dispatch is None else await self._choose(claim)
        if dispatch is not None and provider is None:
            return self._all_open(claim)
        if dispatch is None or provider is None or self._leases.seconds_left(claim) <= 0.0:
            return Settlement(claim=claim, verdict=Defer(0.0))
        began = self._clock.monotonic()
        outcome = await self._call(self._providers[provider], dispatch)
        return await self._conclude(claim, provider, outcome, began)

    async def attempt_many(self, claims: Sequence[Claim]) -> list[Settlement]:
        """Attempt many routes of one provider in one call, where the provider can."""
        settlements: dict[int, Settlement] = {}
        ready: list[Dispatch] = []
        for claim in claims:
            gated = self._gate(claim)
            dispatch = self._dispatch(claim) if gated is None else None
            if dispatch is None:
                settlements[claim.token] = gated or Settlement(claim=claim, verdict=Defer(0.0))
            else:
                ready.append(dispatch)
        if ready:
            admission = await self._breakers.admit(claims[0].provider)
            if admission is not Admission.GO:
                # A probe, or an open breaker with other providers behind it: each route finds its own way.
                if admission is Admission.PROBE:
                    await self._send_batch(ready[:1], settlements)
                    ready = ready[1:]
                for dispatch in ready:
                    settlements[dispatch.claim.token] = await self.attempt(dispatch.claim)
            else:
                await self._send_batch(ready, settlements)
        return [settlements[claim.token] for claim in claims]

    async def _send_batch(self, ready: Sequence[Dispatch], settlements: dict[int, Settlement]) -> None:
        provider = ready[0].claim.provider
        began = self._clock.monotonic()
        outcomes = await self._call_many(self._providers[provider], ready)
        for dispatch, outcome in zip(ready, outcomes, strict=True):
            claim = dispatch.claim
            settlements[claim.token] = await self._conclude(claim, provider, outcome, began)

    def _gate(self, claim: Claim) -> Settlement | None:
        """What keeps a claim from being called at all."""
        if claim.suppressed:
            return Settlement(claim=claim, verdict=Bury("suppressed", "the address was declared dead"))
        if claim.attempt > claim.max_attempts:
            reason = f"abandoned by a worker {claim.attempt - 1} times without an outcome"
            return Settlement(claim=claim, verdict=Bury("crash_loop", reason))
        policy = self._rules.policies.get(claim.policy)
        if claim.abandoned and policy.on_unknown in ("wait_for_receipt", "bury"):
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
        for provider in candidates(self._rules.chains.get(claim.channel, ()), claim.provider):
            if provider in self._providers and await self._breakers.admit(provider) is not Admission.STOP:
                return provider
        return None

    def _all_open(self, claim: Claim) -> Settlement:
        policy = self._rules.policies.get(claim.policy)
        if policy.on_open == "bury":
            return Settlement(claim=claim, verdict=Bury("circuit_open", f"circuit breaker open: {claim.provider}"))
        if claim.age_seconds >= policy.give_up_after_seconds:
            return Settlement(claim=claim, verdict=Bury("expired", "every provider stayed unavailable for too long"))
        return Settlement(claim=claim, verdict=Defer(OPEN_PAUSE_SECONDS * (1 + self._dice())))

    def _dispatch(self, claim: Claim) -> Dispatch | None:
        """The call, bounded by policy and lease; None when the lease ran out while this process was not looking."""
        left = self._leases.seconds_left(claim)
        if left <= 0.0:
            return None
        timeout = self._rules.policies.timeout(claim.policy, self._rules.lanes.by_rank(claim.lane))
        return Dispatch(claim, claim.message(), min(timeout, left))

    async def _call(self, provider: Provider, dispatch: Dispatch) -> Outcome:
        faultpoint("before_send")
        try:
            async with asyncio.timeout(dispatch.timeout_seconds + BACKSTOP_SECONDS):
                outcome = await provider.send(dispatch)
        except TimeoutError:
            outcome = Unknown("the call outlived its deadline", "timeout")
        except asyncio.CancelledError:
            outcome = self._cut_off()
        except Exception as error:  # noqa: BLE001 - a provider's bug must end in its own route's history
            outcome = Unknown(f"provider raised {type(error).__name__}: {error}", "provider_error")
        faultpoint("after_provider_ok")
        return outcome

    async def _call_many(self, provider: Provider, ready: Sequence[Dispatch]) -> list[Outcome]:
        if not hasattr(provider, "send_many"):
            return [await self._call(provider, dispatch) for dispatch in ready]
        many: BatchProvider = provider  # type: ignore[assignment]
        faultpoint("before_send")
        try:
            async with asyncio.timeout(max(dispatch.timeout_seconds for dispatch in ready) + BACKSTOP_SECONDS):
                outcomes = await many.send_many(ready)
        except TimeoutError:
            outcomes = [Unknown("the call outlived its deadline", "timeout") for _ in ready]
        except asyncio.CancelledError:
            outcomes = [self._cut_off() for _ in ready]
        except Exception as error:  # noqa: BLE001 - a provider's bug must end in its own routes' history
            outcomes = [Unknown(f"provider raised {type(error).__name__}: {error}", "provider_error") for _ in ready]
        if len(outcomes) != len(ready):
            said = f"provider gave {len(outcomes)} outcomes for {len(ready)} messages"
            outcomes = [Unknown(said, "provider_error") for _ in ready]
        faultpoint("after_provider_ok")
        return outcomes

    def _cut_off(self) -> Outcome:
        task = asyncio.current_task()
        if not self.cutting_off or task is None:
            raise asyncio.CancelledError
        task.uncancel()
        return Unknown("cut off by shutdown", "shutdown")

    async def _conclude(self, claim: Claim, provider: str, outcome: Outcome, began: float) -> Settlement:
        await self._breakers.record(provider, ok=not isinstance(outcome, Unavailable | Unknown))
        note = AttemptNote(
            provider=provider,
            outcome=outcome_word(outcome),
            duration_ms=(self._clock.monotonic() - began) * 1000,
            classification=_classification(outcome),
            error=None if isinstance(outcome, Sent) else outcome.error,
            provider_message_id=outcome.message_id if isinstance(outcome, Sent) else None,
        )
        gone = isinstance(outcome, Refused) and outcome.recipient_gone
        return Settlement(claim=claim, verdict=self._decide(claim, provider, outcome), note=note, suppress=gone)

    def _decide(self, claim: Claim, provider: str, outcome: Outcome) -> Verdict:
        standing = Standing(
            attempt=claim.attempt,
            attempts_here=claim.attempt - claim.attempts_before if provider == claim.provider else 1,
            max_attempts=claim.max_attempts,
            age_seconds=claim.age_seconds,
            next_provider=self._next.get((claim.channel, provider)),
            dice=self._dice(),
        )
        return decide(outcome, self._rules.policies.get(claim.policy), standing)


def _classification(outcome: Outcome) -> str | None:
    if isinstance(outcome, Sent):
        return None
    return "throttled" if isinstance(outcome, Throttled) else outcome.classification
