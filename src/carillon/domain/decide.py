"""The decisions about a route: the gates before a call and the verdict after it, for the worker and for `explain`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

import msgspec

from carillon.domain.breaker import State
from carillon.domain.claims import Claim
from carillon.domain.consent import GATE, Categories, Wishes
from carillon.domain.outcomes import STOPPING, Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.policy import RetryPolicy
from carillon.domain.suppressions import (
    CLASSIFICATION,
    SUPPRESSED,
    Suppression,
    SuppressionTerms,
    kind_of_refusal,
)
from carillon.domain.targets import Held, parts_of
from carillon.domain.timing import EXPIRED, Stop, read_stop
from carillon.domain.verdicts import FINISH, Bury, Defer, FailOver, Retry, Skip, Verdict

OPEN_PAUSE_SECONDS = 1.0
"""How long, before jitter, a route waits until it asks again whether a breaker lets it through."""
THROTTLE_PAUSE_SECONDS = 1.0
"""How long, before jitter, a throttled route waits whose policy and provider name no wait: it costs no attempt."""
_read_wishes = msgspec.json.Decoder(Wishes).decode


class Standing(msgspec.Struct, frozen=True):
    """The counts and the age of a route when its outcome arrives."""

    attempt: int
    """This attempt's number, counted over all providers, from 1."""
    attempts_here: int
    """Attempts made on this provider, this one included."""
    max_attempts: int
    age_seconds: float
    next_provider: str | None
    """The provider that failover would go to, if there is one."""
    dice: float
    probe: bool = False
    """The call probed a half-open breaker."""


def decide(outcome: Outcome, policy: RetryPolicy, standing: Standing) -> Verdict:
    """Turn the provider's outcome into a verdict."""
    match outcome:
        case Sent():
            return FINISH
        case Throttled():
            return _after_throttle(outcome, policy, standing)
        case Unavailable() if _spends_nothing(policy, standing):
            return _after_probe(outcome, policy, standing)
        case Unavailable():
            return _after_failure(outcome.classification, outcome.error, outcome.retry_after, policy, standing)
        case Refused():
            return _after_refusal(outcome, policy, standing)
        case Unknown():
            return _after_unknown(outcome, policy, standing)
        case _:
            assert_never(outcome)


def clamp_retry_after(asked: float | None, wait: float, policy: RetryPolicy) -> float:
    """The wait before the next attempt: a vendor's Retry-After may lengthen it up to the cap, never shorten it."""
    if asked is None or not asked > wait:  # NaN is greater than nothing
        return wait
    return min(asked, max(wait, policy.retry_after_cap_seconds))


def _after_throttle(outcome: Throttled, policy: RetryPolicy, standing: Standing) -> Verdict:
    if policy.throttled_counts and not _spends_nothing(policy, standing):
        return _after_failure("throttled", outcome.error, outcome.retry_after, policy, standing)
    if standing.age_seconds >= policy.give_up_after_seconds:
        return Bury("expired", f"throttled for too long: {outcome.error}")
    wait = clamp_retry_after(outcome.retry_after, policy.delay(standing.attempts_here, standing.dice), policy)
    if wait <= 0.0 and outcome.classification != STOPPING:
        # No attempt is counted: without a pause the provider would be called again at once until the route expires.
        wait = THROTTLE_PAUSE_SECONDS * (1 + standing.dice)
    return Defer(wait)


def _spends_nothing(policy: RetryPolicy, standing: Standing) -> bool:
    """Whether the vendor's refusal to take this call is no attempt of the message.

    A probe asks for all who wait. If it were counted, the messages that probe would die in a long outage, although the
    policy says that they wait. A probe without an answer is counted: the message may have arrived, and each repeat may
    be one more for its reader.
    """
    return standing.probe and policy.on_open == "defer"


def _after_probe(outcome: Unavailable, policy: RetryPolicy, standing: Standing) -> Verdict:
    """The provider is still away: wait as those wait who were not chosen to ask."""
    if standing.age_seconds >= policy.give_up_after_seconds:
        return Bury("expired", f"every provider stayed unavailable for too long: {outcome.error}")
    # A vendor's wish to be left alone does not hold back another vendor.
    asked = outcome.retry_after if standing.next_provider is None else None
    return Defer(clamp_retry_after(asked, OPEN_PAUSE_SECONDS * (1 + standing.dice), policy))


def _after_failure(
    classification: str, error: str, retry_after: float | None, policy: RetryPolicy, standing: Standing
) -> Verdict:
    if standing.attempt >= standing.max_attempts:
        return Bury(classification, exhausted_text(standing.attempt, error))
    wait = policy.delay(standing.attempt, standing.dice)
    if standing.next_provider is not None and standing.attempts_here >= policy.failover_after(standing.max_attempts):
        return FailOver(standing.next_provider, wait)
    return Retry(clamp_retry_after(retry_after, wait, policy))


def _after_refusal(outcome: Refused, policy: RetryPolicy, standing: Standing) -> Verdict:
    may = policy.may_ask_another(outcome.classification) and standing.attempt < standing.max_attempts
    if may and standing.next_provider is not None:
        return FailOver(standing.next_provider)
    return Bury(outcome.classification, outcome.error)


def _after_unknown(outcome: Unknown, policy: RetryPolicy, standing: Standing) -> Verdict:
    match policy.on_unknown:
        case "retry":
            return _after_failure(outcome.classification, outcome.error, None, policy, standing)
        case "fail_over":
            if standing.next_provider is not None and standing.attempt < standing.max_attempts:
                return FailOver(standing.next_provider)
            return _after_failure(outcome.classification, outcome.error, None, policy, standing)
        case "wait_for_receipt":
            # A receipt that comes in the meantime settles the route; without one it is tried again.
            if standing.attempt >= standing.max_attempts:
                return Bury(outcome.classification, exhausted_text(standing.attempt, outcome.error))
            return Retry(policy.receipt_wait_seconds)
        case "bury":
            return Bury(outcome.classification, outcome.error)


def exhausted_text(attempts: int, error: str) -> str:
    """The sentence stored when a budget is used up."""
    return f"Retry exhausted after {attempts} attempts. Last error: {error}"


def barred(claim: Claim) -> Bury | Skip | None:
    """The verdict on a claim that no provider is called for; None if a call may be made."""
    if claim.stopped is not None:
        return skip_because(read_stop(claim.stopped))
    if claim.expires_in is not None and claim.expires_in <= 0.0:
        return EXPIRY
    if claim.suppressed:
        return Bury(CLASSIFICATION, SUPPRESSED)
    if claim.attempt > claim.max_attempts:
        return Bury("crash_loop", f"abandoned by a worker {claim.attempt - 1} times without an outcome")
    return None


def skip_because(stop: Stop) -> Skip:
    """The verdict on a claim whose notification was stopped."""
    return Skip(stop.gate, stop.reason)


EXPIRY = skip_because(Stop(EXPIRED))
"""The verdict on a claim whose notification has expired."""


def unwanted(claim: Claim, categories: Categories) -> Skip | None:
    """The verdict on a claim whose person has left the category since the acceptance; None if a call may be made."""
    if claim.category is None or claim.wishes_json is None:
        return None
    category = categories.find(claim.category, claim.tenant_id)
    refused = None if category is None else _read_wishes(claim.wishes_json).refusal(category, claim.channel)
    return None if refused is None else Skip(GATE, refused)


def suppression_after(
    claim: Claim, outcome: Outcome, terms: SuppressionTerms | None, policy: RetryPolicy, next_provider: str | None
) -> Suppression | None:
    """The suppression that a provider's answer to a send causes: the tenant's own, for as long as its kind holds.

    One vendor's word against an address is not enough while another provider may still be asked.
    """
    if terms is None or not isinstance(outcome, Refused) or not outcome.recipient_gone or claim.address is None:
        return None
    if next_provider is not None and policy.may_ask_another(outcome.classification):
        return None
    return terms.caused(
        kind_of_refusal(claim.channel, outcome.classification),
        channel=claim.channel,
        address=claim.address,
        tenant_id=claim.tenant_id,
        reason=outcome.classification,
        source="delivery",
    )


def candidates(chain: Sequence[str], current: str) -> list[str]:
    """The providers of a route in the order in which they are tried: the current one, those after it, then the rest."""
    if current not in chain:
        return list(chain)
    at = list(chain).index(current)
    return [*chain[at:], *chain[:at]]


def following(chain: Sequence[str], provider: str) -> str | None:
    """The provider that failover from `provider` goes to; None after the last one."""
    if provider not in chain:
        return None
    rest = list(chain)[list(chain).index(provider) + 1 :]
    return rest[0] if rest else None


def blocked_providers(chains: Mapping[str, Sequence[str]], states: Mapping[str, State]) -> set[str]:
    """Providers with an open breaker and no alternative on any channel: a worker does not claim their routes."""
    open_now = {provider for provider, state in states.items() if state is State.OPEN}
    return {
        provider
        for provider in open_now
        if all(set(chain) <= open_now for chain in chains.values() if provider in chain)
    }


def when_open(
    claim: Claim, policy: RetryPolicy, states: Iterable[State | None], dice: float, held: Sequence[Held] = ()
) -> Bury | Defer:
    """The verdict on a claim when every breaker of its chain refuses the call; `states` are those of the chain.

    `held` says what holds the call at each provider, where that is known.
    """
    turns = [one for one in held if one.rate]
    if turns:
        # What an operator has paused waits for the operator, however long that takes.
        if turns[0].paused is None and claim.age_seconds >= policy.give_up_after_seconds:
            return Bury("expired", f"waited for its turn at {turns[0].target} for too long")
        return Defer(_up_to_ms(min(one.seconds or 0.0 for one in turns)))
    if held and all(one.disabled for one in held):
        return Bury("endpoint_disabled", f"endpoint disabled after failing for days: {held[0].target}")
    # While another worker probes the provider, or has just closed its breaker, defer: the message must not become a
    # dead letter because it came a moment too early.
    healing = any(state in (State.HALF_OPEN, State.CLOSED) for state in states)
    if policy.on_open == "bury" and not healing:
        return Bury("circuit_open", f"circuit breaker open: {held[0].target if held else claim.provider}")
    if claim.age_seconds >= policy.give_up_after_seconds:
        return Bury("expired", "every provider stayed unavailable for too long")
    return Defer(_pause(held, dice))


def _pause(held: Sequence[Held], dice: float) -> float:
    """Seconds until the first of the held calls is worth asking for again."""
    usual = OPEN_PAUSE_SECONDS * (1 + dice)
    waits = (usual if one.seconds is None else _up_to_ms(one.seconds + one.spread * dice) for one in held)
    return min(waits, default=usual)


def _up_to_ms(seconds: float) -> float:
    """Whole milliseconds, rounded up: the ledger counts in them, and a route must not come back a moment too early."""
    return math.ceil(seconds * 1000) / 1000


def chain_states(chain: Iterable[str], states: Mapping[str, State], held: Sequence[Held]) -> list[State | None]:
    """The state that decides at each provider of a chain: of the endpoint where that holds the call."""
    by_provider = {provider: one for one in held for provider, endpoint in [parts_of(one.target)] if endpoint}
    return [
        (State.HALF_OPEN if by_provider[name].healing else State.OPEN) if name in by_provider else states.get(name)
        for name in chain
    ]


def standing_of(claim: Claim, provider: str, next_provider: str | None, dice: float) -> Standing:
    """The standing of the claim's route after `provider` answered; a substitute provider was called once."""
    return Standing(
        attempt=claim.attempt,
        attempts_here=claim.attempt - max(claim.attempts_before, 0) if provider == claim.provider else 1,
        max_attempts=claim.max_attempts,
        age_seconds=claim.age_seconds,
        next_provider=next_provider,
        dice=dice,
        probe=claim.probe,
    )


def opens_breaker(outcome: Outcome, policy: RetryPolicy, standing: Standing) -> bool:
    """Whether this failure opens the provider's breaker, because the message has used up its attempts there."""
    if not (policy.open_after_retries and provider_failed(outcome)) or standing.next_provider is None:
        return False
    used_up = standing.attempts_here >= policy.failover_after(standing.max_attempts)
    return used_up or standing.attempt >= standing.max_attempts


def provider_failed(outcome: Outcome, *, throttled_fails: bool = False) -> bool:
    """Whether a breaker counts the outcome as a failure; a provider that refuses a message is working."""
    return isinstance(outcome, Unavailable | Unknown) or (throttled_fails and isinstance(outcome, Throttled))
