"""One attempt: the checks before the call, the call, and the verdict on its outcome."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from carillon.domain.breaker import State
from carillon.domain.claims import AttemptNote, Claim, Dispatch, Settlement, other_group
from carillon.domain.consent import NO_CATEGORIES, Categories
from carillon.domain.content.phones import COUNTRY, PhoneRules
from carillon.domain.decide import (
    EXPIRY,
    Standing,
    barred,
    candidates,
    chain_states,
    decide,
    following,
    opens_breaker,
    standing_of,
    suppression_after,
    unwanted,
    when_open,
)
from carillon.domain.groups import Groups
from carillon.domain.lanes import Lanes
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Sent, Unknown, outcome_word
from carillon.domain.policy import PolicyTable
from carillon.domain.ports import BatchProvider, Breakers, Clock, Dice, Preparer, Provider, StartingProvider
from carillon.domain.suppressions import SuppressionTerms
from carillon.domain.targets import Held, parts_of, tenant_of
from carillon.domain.verdicts import FINISH, Bury, Defer, Retry, Verdict
from carillon.outbound.admission import Admissions
from carillon.outbound.calls import Calls, EndedCall
from carillon.outbound.completing import MailCompleter
from carillon.outbound.leases import Leases
from carillon.outbound.targets import Targets

MOST_LEFT_OUT_SECONDS = 30.0
"""Another process may have closed the breaker: a few routes of the group are claimed again after this time."""


class AttemptRules(msgspec.Struct, frozen=True):
    """A blueprint's rules for attempts."""

    chains: Mapping[str, Sequence[str]]
    """The providers of each channel, in the order of failover."""
    policies: PolicyTable
    lanes: Lanes
    half_open_wait_seconds: float | None = None
    """How long a message waits for the probe of a half-open breaker, which then counts as open; None: without limit."""
    end_on_open: bool = False
    """True dead-letters a message whose own failure opened the breaker, instead of retrying it."""
    throttled_fails: bool = False
    """True makes a breaker count throttled answers as failures."""
    outlive_leases: bool = False
    """True limits a call by its policy only: its lease is renewed while it runs, and a lost lease cancels the call."""
    give_back: bool = False
    """True returns a call that the shutdown cancelled to the backlog, uncounted: the vendor recognises a repeat."""
    suppressions: SuppressionTerms | None = None
    """How long a dead address is suppressed, and for whom; None for a backlog that keeps no suppressions."""
    phones: PhoneRules = PhoneRules()
    """The countries that text messages go to: what was accepted under other settings is not sent."""
    categories: Categories = NO_CATEGORIES
    groups: Mapping[str, Groups] = {}
    """A route goes to another provider with caps through the backlog, which counts the places there."""
    unsubscribe: Callable[[Claim], str | None] | None = None
    """Where one click leaves the category of a message; None where no such links are made."""


class Attempts:
    """Turns claims into settlements; an error of a provider or in a message becomes a verdict, not an exception."""

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
        targets: Targets | None = None,
        completer: MailCompleter | None = None,
    ) -> None:
        self._preparer = preparer
        self._completer = completer
        self._admissions = Admissions(
            providers,
            breakers,
            targets,
            clock,
            patience_seconds=rules.half_open_wait_seconds or 0.0,
            throttled_fails=rules.throttled_fails,
        )
        self._providers = providers
        self._breakers = breakers
        self._leases = leases
        self._rules = rules
        self._clock = clock
        self._dice = dice
        self._next = {
            (channel, name): following(chain, name) for channel, chain in rules.chains.items() for name in chain
        }
        self._calls = Calls(give_back=rules.give_back)
        self._many = frozenset(name for name, provider in providers.items() if isinstance(provider, BatchProvider))
        self._starting = {name: one for name, one in providers.items() if isinstance(one, StartingProvider)}
        self._timeouts: dict[tuple[str, int], float] = {}
        self._left_out: dict[str, dict[int, float]] = {}
        """By provider and the number of a group without its sign: until when its routes are not claimed."""

    def cut_off(self) -> None:
        """The drain time is over: from now on a cancelled call has an unknown outcome."""
        self._calls.cutting_off = True

    def sends_batches(self, claim: Claim) -> bool:
        """Whether the claim's provider sends batches; a message that must be prepared first is sent alone."""
        return self._preparer is None and claim.provider in self._many

    def calls_concurrently(self, claim: Claim) -> bool:
        """Whether the claim's provider can make many concurrent calls without a task for each."""
        return self._preparer is None and claim.provider in self._starting

    async def attempt(self, claim: Claim) -> Settlement:
        """Attempt one route."""
        gated = self.gate(claim)
        if gated is not None:
            return gated
        # Check the lease before asking the breaker: an expired claim must not use up a probe.
        dispatch = await self._ready(claim)
        if isinstance(dispatch, Settlement):
            return dispatch
        chosen = None if dispatch is None else await self._choose(claim)
        if isinstance(chosen, list):
            self._leave_out(claim, chosen)
            chosen = self._all_open(claim, chosen, await self._breakers.states())
        if isinstance(chosen, Settlement):
            return chosen
        if dispatch is None or chosen is None:
            return Settlement(claim=claim, verdict=Defer(0.0))
        provider, delay = chosen
        if delay > 0.0:
            await self._clock.sleep(delay)
        expired = self._leases.expires_within(claim)
        if expired or self._leases.seconds_left(claim) <= 0.0:
            return Settlement(claim=claim, verdict=EXPIRY if expired else Defer(0.0))
        began = self._clock.monotonic()
        outcome = await self._calls.one(self._providers[provider], dispatch)
        return await self._conclude(claim, provider, outcome, self._since(began))

    async def _ready(self, claim: Claim) -> Dispatch | Settlement | None:
        """The call with its whole message; None when the lease has expired."""
        dispatch = self._dispatch(claim)
        if dispatch is not None and self._preparer is not None and claim.message_json is None:
            prepared = await self._preparer.prepare(claim)
            if not isinstance(prepared, Message):
                return Settlement(claim=claim, verdict=prepared)
            # The message is stored with the claim: later attempts send the same text.
            claim.message_json = msgspec.json.encode(prepared).decode()
            dispatch = self._dispatch(claim)
        if dispatch is not None and self._completer is not None and claim.to_complete():
            return await self._completed(self._completer, dispatch) or self._dispatch(claim)
        return dispatch

    async def _completed(self, completer: MailCompleter, dispatch: Dispatch) -> Settlement | None:
        """Complete the email before a breaker is asked; a settlement if that fails.

        A file that cannot be fetched says nothing about the provider: no breaker counts it, and nobody takes over.
        """
        claim, began = dispatch.claim, self._clock.monotonic()
        outcome = await completer.complete(claim, dispatch.timeout_seconds)
        if outcome is None:
            return None
        stands = standing_of(claim, claim.provider, None, self._dice())
        verdict = decide(outcome, self._rules.policies.get(claim.policy), stands)
        return Settlement(claim=claim, verdict=verdict, note=noted(claim.provider, outcome, self._since(began)))

    async def attempt_many(self, claims: Sequence[Claim]) -> list[Settlement]:
        """Attempt many routes of one provider in one batch call."""
        ready, alone, held = await self.ready_to_call(claims)
        settlements = {one.claim.token: one for one in held}
        settlements |= {one.claim.token: one for one in await self._send_batch(ready)} if ready else {}
        for claim in alone:
            settlements[claim.token] = await self.attempt(claim)
        return [settlements[claim.token] for claim in claims]

    async def _send_batch(self, ready: Sequence[Dispatch]) -> list[Settlement]:
        # Many messages in one call are one request: it starts at the first of their places.
        delay = min(one.starts_in for one in ready)
        if delay > 0.0:
            await self._clock.sleep(delay)
        if any(one.starts_in > 0.0 for one in ready):
            # All of them start now: what is counted from here has no wait in it that would have to be taken off.
            ready = [msgspec.structs.replace(one, starts_in=0.0) for one in ready]
        began = self._clock.monotonic()
        outcomes = await self._calls.batch(self._providers[ready[0].claim.provider], ready)
        return await self.conclude(list(zip(ready, outcomes, strict=True)), self._since(began))

    async def ready_to_call(self, claims: Sequence[Claim]) -> tuple[list[Dispatch], list[Claim], list[Settlement]]:
        """The calls of one provider that may start together, the claims that need an attempt of their own, and more.

        The settlements end claims whose endpoint must not be called now.
        """
        provider = claims[0].provider
        plain: list[Claim] = []
        alone: list[Claim] = []
        for claim, left in zip(claims, self._leases.all_seconds_left(claims), strict=True):
            usual = left > 0.0 and (claim.channel, provider) in self._next and self.gate(claim) is None
            (plain if usual and not claim.forced else alone).append(claim)
        found = await self._admissions.admit_many(provider, plain)
        alone += found.refused
        settled: list[Settlement] = []
        states = await self._breakers.states() if found.held else {}
        for claim, held in found.held:
            self._leave_out(claim, [held])
            if len(self._rules.chains[claim.channel]) > 1 and not held.rate:
                alone.append(claim)
            else:
                settled.append(self._all_open(claim, [held], states))
        ready: list[Dispatch] = []
        delays = found.delays
        for claim, left in zip(found.go, self._leases.all_seconds_left(found.go), strict=True):
            delay = delays.get(claim.token, 0.0) if delays else 0.0
            if left > 0.0 and (claim.expires_in is None or not self._leases.expires_within(claim, delay)):
                ready.append(self._call_within(claim, left, delay))
            else:
                alone.append(claim)
        return ready, alone, settled

    async def call_concurrently(
        self, ready: Sequence[Dispatch], on_ended: Callable[[list[EndedCall], float], None]
    ) -> None:
        """Make these calls; `on_ended` gets the calls that ended and the milliseconds since the start."""
        began = self._clock.monotonic()
        provider = self._starting[ready[0].claim.provider]
        await self._calls.concurrent(provider, ready, lambda ended: on_ended(ended, self._since(began)))

    def gate(self, claim: Claim) -> Settlement | None:
        """The settlement of a claim that must not be called; None when it may be called."""
        verdict = EXPIRY if self._leases.expires_within(claim) else barred(claim)
        verdict = verdict or unwanted(claim, self._rules.categories) or self._abroad(claim)
        if verdict is not None:
            return Settlement(claim=claim, verdict=verdict)
        if claim.abandoned and self._rules.policies.get(claim.policy).on_unknown in ("wait_for_receipt", "bury"):
            # The previous worker died with this route: its message may be out, and this policy forbids a repeat.
            lost = Unknown("a worker died holding this route", "abandoned")
            note = AttemptNote(
                provider=claim.provider,
                outcome="unknown",
                duration_ms=0.0,
                classification="abandoned",
                error=lost.error,
            )
            policy = self._rules.policies.get(claim.policy)
            return Settlement(
                claim=claim, verdict=decide(lost, policy, self._standing(claim, claim.provider)), note=note
            )
        return None

    def _abroad(self, claim: Claim) -> Bury | None:
        refusal = self._rules.phones.refusal(claim.address or "", claim.tenant_id) if claim.channel == "sms" else None
        return None if refusal is None else Bury(COUNTRY, refusal)

    async def _choose(self, claim: Claim) -> tuple[str, float] | list[Held] | Settlement:
        """The provider that may be called and in how many seconds; otherwise what holds the call at each provider.

        A settlement takes the route to another provider, whose caps it must keep.
        """
        if claim.forced and claim.provider in self._providers:
            # Forced past its breaker, yet not past a pause.
            paused = await self._admissions.paused(claim.provider, claim)
            return (claim.provider, 0.0) if paused is None else [paused]
        held: list[Held] = []
        for provider in candidates(self._rules.chains.get(claim.channel, ()), claim.provider):
            if provider in self._providers:
                group = None if provider == claim.provider else other_group(self._rules.groups, provider, claim)
                if group is None:
                    said: Held | float | None = await self._admissions.admit(provider, claim)
                else:
                    said = await self._admissions.passed_on(provider, claim)
                if said is None:
                    return Settlement(claim=claim, verdict=Defer(0.0), provider=provider, group=group)
                if not isinstance(said, Held):
                    return provider, said
                held.append(said)
                if said.rate:
                    break
        return held

    def left_out(self, provider: str) -> list[int]:
        """Groups of a provider whose endpoint must not be called now: a claim leaves their routes where they are."""
        groups, now = self._left_out.get(provider, {}), self._clock.monotonic()
        for group in [group for group, until in groups.items() if until <= now]:
            del groups[group]
        return list(groups)

    def _leave_out(self, claim: Claim, held: Sequence[Held]) -> None:
        """Leave the rest of the claim's group in the ledger while its endpoint must not be called.

        Not where the claims themselves are wanted: to fail over, or to become dead letters.
        """
        (only, *more) = held or (None,)
        buries = self._rules.policies.get(claim.policy).on_open == "bury" and not (only and only.rate)
        if only is None or more or only.disabled or not only.seconds or buries or not claim.group:
            return
        groups = self._rules.groups.get(claim.provider)
        # A group by tenant or person has routes to other endpoints too.
        endpoint = parts_of(only.target)[1] is not None and groups is not None and groups.is_one_endpoint(claim.address)
        # Every group is of one tenant, so a tenant's pause holds its whole group.
        whole = only.paused is not None and (endpoint or tenant_of(only.target) is not None)
        if whole or (endpoint and len(self._rules.chains.get(claim.channel, ())) == 1):
            until = self._clock.monotonic() + min(only.seconds, MOST_LEFT_OUT_SECONDS)
            self._left_out.setdefault(claim.provider, {})[abs(claim.group)] = until

    def _all_open(self, claim: Claim, held: Sequence[Held], states: Mapping[str, State]) -> Settlement:
        policy = self._rules.policies.get(claim.policy)
        chain = [name for name in self._rules.chains.get(claim.channel, ()) if name in self._providers]
        # A message that has waited its time for another's probe takes the breaker for open.
        waits = self._rules.half_open_wait_seconds is None
        known = chain_states(chain, states, held) if waits else []
        return Settlement(claim=claim, verdict=when_open(claim, policy, known, self._dice(), held))

    def _dispatch(self, claim: Claim) -> Dispatch | None:
        """The call with its deadline from policy and lease; None when the lease has expired."""
        left = self._leases.seconds_left(claim)
        return None if left <= 0.0 else self._call_within(claim, left)

    def _call_within(self, claim: Claim, left: float, starts_in: float = 0.0) -> Dispatch:
        timeout = self._timeouts.get((claim.policy, claim.lane))
        if timeout is None:
            timeout = self._rules.policies.timeout(claim.policy, self._rules.lanes.by_rank(claim.lane))
            self._timeouts[claim.policy, claim.lane] = timeout
        if claim.category is not None and self._rules.unsubscribe is not None:
            claim.unsubscribe_url = self._rules.unsubscribe(claim)
        if not self._rules.outlive_leases and left - starts_in < timeout:
            timeout = max(left - starts_in, 0.0)
        return Dispatch(claim, claim.message(), timeout, starts_in)

    def _since(self, began: float) -> float:
        return (self._clock.monotonic() - began) * 1000

    async def conclude(self, ended: Sequence[EndedCall], took: float) -> list[Settlement]:
        """The settlements of calls of one provider, in the order in which the calls ended."""
        provider = ended[0][0].claim.provider
        waited = 1000 * min(dispatch.starts_in for dispatch, _ in ended)
        outcomes = [(dispatch.claim, outcome) for dispatch, outcome in ended]
        await self._calls.afterwards(self._admissions.record(provider, outcomes, took - waited))
        settlements: list[Settlement] = []
        for dispatch, outcome in ended:
            note = noted(provider, outcome, took - 1000 * dispatch.starts_in)
            if isinstance(outcome, Sent):
                settlements.append(Settlement(claim=dispatch.claim, verdict=FINISH, note=note))
            else:
                settlements.append(await self._not_sent(dispatch.claim, provider, outcome, note))
        return settlements

    async def _conclude(self, claim: Claim, provider: str, outcome: Outcome, took: float) -> Settlement:
        await self._calls.afterwards(self._admissions.record(provider, [(claim, outcome)], took))
        note = noted(provider, outcome, took)
        if isinstance(outcome, Sent):
            return Settlement(claim=claim, verdict=FINISH, note=note)
        return await self._not_sent(claim, provider, outcome, note)

    async def _not_sent(self, claim: Claim, provider: str, outcome: Outcome, note: AttemptNote) -> Settlement:
        policy, stands = self._rules.policies.get(claim.policy), self._standing(claim, provider)
        suppression = suppression_after(claim, outcome, self._rules.suppressions, policy, stands.next_provider)
        verdict = decide(outcome, policy, stands)
        if opens_breaker(outcome, policy, stands):
            await self._calls.afterwards(self._admissions.trip(provider))
        if self._rules.end_on_open and isinstance(verdict, Retry):
            verdict = await self._unless_opened(claim, verdict)
        return Settlement(claim=claim, verdict=verdict, note=note, suppression=suppression)

    async def _unless_opened(self, claim: Claim, verdict: Retry) -> Verdict:
        """The retry, or a dead letter if the breaker opened and would not let the retry through."""
        policy, states = self._rules.policies.get(claim.policy), await self._breakers.states()
        if policy.on_open == "bury" and states.get(claim.provider) is State.OPEN:
            return Bury("circuit_open", f"circuit breaker open: {claim.provider}")
        return verdict

    def _standing(self, claim: Claim, provider: str) -> Standing:
        return standing_of(claim, provider, self._next.get((claim.channel, provider)), self._dice())


def noted(provider: str, outcome: Outcome, duration_ms: float) -> AttemptNote:
    """The ledger's note of a call."""
    if isinstance(outcome, Sent):
        return AttemptNote(
            provider=provider, outcome="sent", duration_ms=duration_ms, provider_message_id=outcome.message_id
        )
    return AttemptNote(
        provider=provider,
        outcome=outcome_word(outcome),
        duration_ms=duration_ms,
        classification=outcome.classification,
        error=outcome.error,
    )
