"""Leases by this process's own clock: counted from before the claim was asked, and never too long."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.claims import Claim, Settled, Settlement, Want
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Event, LeaseLost, Trouble
from carillon.outbound.leases import Leases
from tests.support import dispatches
from tests.support.clocks import ManualClock
from tests.support.examples import examples

PROPERTY = examples(200)


class Unused:
    """A backlog that a test must not come to."""

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        raise AssertionError((wants, total, owner))

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        raise AssertionError(claims)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        raise AssertionError(settlements)


class Renewing(Unused):
    """Knows which tokens are still the worker's; renewing takes time."""

    def __init__(self, clock: ManualClock, lost: set[int], *, away: bool = False) -> None:
        self.clock = clock
        self.lost = lost
        self.away = away

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        self.clock.now += 2.0
        if self.away:
            raise LedgerUnavailable("away")
        return [claim for claim in claims if claim.token in self.lost]


def claim(token: int) -> Claim:
    return dispatches.claim(notification_id=f"n-{token}", route_id="email:x", provider="smtp", token=token)


@PROPERTY
@given(st.floats(min_value=0.1, max_value=1e4), st.floats(min_value=0.0, max_value=1e4), st.floats(0.0, 1e4))
def test_a_call_always_ends_before_its_lease_does(seconds: float, answer_took: float, later: float) -> None:
    clock = ManualClock()
    leases = Leases(Unused(), clock, lambda _: None, seconds)
    asked_at = clock.monotonic()
    clock.now += answer_took
    leases.take([claim(1)], asked_at)
    clock.now += later
    left = leases.seconds_left(claim(1))
    assert left >= 0.0
    # The ledger's lease began when it was asked or later, so it ends here at the earliest.
    assert left == 0.0 or clock.monotonic() + left < asked_at + seconds


def test_what_is_not_held_has_no_time_left() -> None:
    clock = ManualClock()
    leases = Leases(Unused(), clock, lambda _: None, 30.0)
    assert leases.seconds_left(claim(1)) == 0.0
    leases.take([claim(1), claim(2)], clock.monotonic())
    leases.drop([claim(1)])
    leases.drop([claim(1)])
    assert (len(leases), leases.seconds_left(claim(1)), leases.seconds_left(claim(2))) == (1, 0.0, 27.0)


async def test_a_worker_that_holds_nothing_says_so_too() -> None:
    """A queue learns from it that nobody holds what it has handed out."""
    told: list[Sequence[Claim]] = []

    class Hearing(Unused):
        async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
            told.append(claims)
            return []

    await Leases(Hearing(), ManualClock(), lambda _: None, 30.0).renew()
    assert told == [[]]


async def test_renewing_counts_from_before_it_asked_and_forgets_what_was_lost() -> None:
    clock, events = ManualClock(), list[Event]()
    leases = Leases(Renewing(clock, {2}), clock, events.append, 30.0)
    leases.take([claim(1), claim(2)], clock.monotonic())
    clock.now += 20.0
    await leases.renew()
    assert leases.seconds_left(claim(1)) == 25.0, "27 seconds, less the two that asking took"
    assert leases.seconds_left(claim(2)) == 0.0
    assert events == [LeaseLost(notification_id="n-2", route_id="email:x", provider="smtp")]


async def test_an_absent_ledger_renews_nothing_and_ends_nothing() -> None:
    clock, events = ManualClock(), list[Event]()
    leases = Leases(Renewing(clock, set(), away=True), clock, events.append, 30.0)
    leases.take([claim(1)], clock.monotonic())
    await leases.renew()
    assert leases.seconds_left(claim(1)) == 25.0
    assert events == [Trouble(where="leases", error="away")]


async def test_what_was_settled_during_a_renewal_stays_settled() -> None:
    clock = ManualClock()

    class Settling(Renewing):
        async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
            leases.drop([claim(1)])
            return await super().extend(claims)

    leases = Leases(Settling(clock, set()), clock, lambda _: None, 30.0)
    leases.take([claim(1)], clock.monotonic())
    await leases.renew()
    assert len(leases) == 0
