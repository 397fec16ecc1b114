"""The pace of calls: at most so many a second over a fleet, evenly spaced, and slower after a peer says so."""

import math

import msgspec

from carillon.domain.errors import ConfigurationError

HORIZON_SECONDS = 0.5
"""A call that may start within this time waits for its moment in the worker; any other is deferred."""
MARGIN = 0.95
"""Calls are planned at this share of a limit: a late timer or a slow network must not put two into one place."""
LEAST_LEAD_SECONDS, MOST_LEAD_SECONDS = 0.01, 0.3
"""Places are so far ahead that the answer of the store comes in time."""
SLOWER = 0.7
"""A peer that says "too many" is called at this share of the rate that it answered so."""
LEAST_LEARNT = 1.0
"""A rate is learnt only if it is not less than this: a peer that is called seldom gets its pause and nothing else."""
HOLD_SECONDS, GROWTH = 10.0, 1.1
"""A learnt rate holds so long and then grows by this factor each second."""
FORGET_GROWTH = 16.0
"""Where no limit is configured, a learnt rate that has grown by this factor is none any more."""
DEFAULT_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 3600.0
QUIET_SECONDS = 60.0
MOST_DEFERRED_SECONDS = 300.0
"""The longest wait for a turn: a raised limit must not find routes that wait for hours."""
_NONE = 0.0


class RatePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many requests a second one provider gets, over all processes; None is no limit."""

    per_second: float | None = None
    """Of the provider, which is one account or sender of its vendor."""
    endpoint_per_second: float | None = None
    """Of each endpoint of a provider that has endpoints."""

    def checked(self, where: str) -> "RatePolicy":
        """This policy if it is valid; raises ConfigurationError with the reason."""
        check_rate(f"{where}.per_second", self.per_second)
        check_rate(f"{where}.endpoint_per_second", self.endpoint_per_second)
        return self


def check_rate(path: str, rate: float | None) -> None:
    """Raise ConfigurationError for a rate that nobody can mean."""
    if rate is not None and not 0.001 <= rate <= 1_000_000:  # noqa: PLR2004 - one in a quarter of an hour, and a million
        raise ConfigurationError(f"{path}: {rate:g} is not between 0.001 and 1,000,000 requests a second")


class Pace(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the next call may start; times are seconds by the clock of the store that keeps it."""

    next_at: float = _NONE
    """The next free place."""
    not_before: float = _NONE
    """The peer asked for a pause until then."""
    learnt: float = _NONE
    """Calls a second that the peer was found to bear; 0 if nothing was learnt."""
    learnt_at: float = _NONE

    def moved(self, seconds: float) -> "Pace":
        """The same pace on a clock that is `seconds` ahead."""
        next_at, not_before, learnt_at = (at and at + seconds for at in (self.next_at, self.not_before, self.learnt_at))
        return Pace(next_at, not_before, self.learnt, learnt_at)

    def quiet(self, now: float) -> bool:
        """Whether it would make no difference to forget this pace."""
        idle = now - max(self.next_at, self.not_before) > QUIET_SECONDS
        return self == NO_PACE or (idle and (not self.learnt or _grown(self, now) >= self.learnt * FORGET_GROWTH))


NO_PACE = Pace()


def _grown(pace: Pace, now: float) -> float:
    """The learnt rate, which grows while the peer does not complain."""
    seconds = max(0.0, now - pace.learnt_at - HOLD_SECONDS)
    return pace.learnt * float(GROWTH ** min(seconds, 1000.0))


def limit_of(pace: Pace, configured: float | None, now: float) -> float | None:
    """Calls a second that may start now: what is configured or what was learnt, whichever is less; None: no limit."""
    if not pace.learnt:
        return configured
    grown = _grown(pace, now)
    if configured is not None:
        return min(configured, grown)
    return None if grown >= pace.learnt * FORGET_GROWTH else grown


def first_place(pace: Pace, now: float) -> float:
    """When the next call could start."""
    return max(now, pace.next_at, pace.not_before)


def room(pace: Pace, configured: float | None, now: float, lead: float = LEAST_LEAD_SECONDS) -> int | None:
    """How many calls could start within the horizon, none of them before `lead` is over; None is any number."""
    limit, at = limit_of(pace, configured, now), first_place(pace, now)
    if at > now + HORIZON_SECONDS:
        return 0
    left = now + HORIZON_SECONDS - max(at, now + lead)
    return None if limit is None else math.floor(left * limit * MARGIN) + 1


def reserve(
    pace: Pace, configured: float | None, calls: int, now: float, lead: float = LEAST_LEAD_SECONDS
) -> tuple[Pace, list[float]]:
    """Take places for at most so many calls within the horizon: the pace afterwards, and when each call starts."""
    limit, at = limit_of(pace, configured, now), first_place(pace, now)
    if at > now + HORIZON_SECONDS:
        return pace, []
    if limit is None:
        return pace, [at] * calls
    at = max(at, now + lead)
    starts: list[float] = []
    while len(starts) < calls and at <= now + HORIZON_SECONDS:
        starts.append(at)
        at += 1 / (limit * MARGIN)
    return msgspec.structs.replace(pace, next_at=at), starts


def slowed(
    pace: Pace, configured: float | None, *, observed: float | None, retry_after: float | None, now: float
) -> Pace:
    """The pace after a peer said "too many"; `observed` is how many calls started in the last second.

    Without `observed` the peer only asked for a pause: one that is down says nothing about a rate.
    """
    asked = DEFAULT_PAUSE_SECONDS if retry_after is None or not retry_after >= 0.0 else retry_after
    pause = min(asked, LONGEST_PAUSE_SECONDS)
    until = max(pace.not_before, now + pause)
    if observed is None or (pace.learnt and now < pace.learnt_at + 1.0):
        # Calls that were on their way say the same again: it counts once.
        return msgspec.structs.replace(pace, not_before=until)
    rate = SLOWER * (limit_of(pace, configured, now) or observed)
    if rate < LEAST_LEARNT:
        return msgspec.structs.replace(pace, not_before=until)
    return msgspec.structs.replace(pace, not_before=until, learnt=rate, learnt_at=until)
