"""Rates over a fleet: two replicas share the places, a complaint slows both of them, and neighbours go on."""

import asyncio
from itertools import pairwise

import pytest

from carillon.domain.breaker import BreakerPolicy
from carillon.domain.claims import Claim
from carillon.domain.events import TargetSlowed
from carillon.domain.outcomes import Outcome, Sent, Throttled, Unavailable
from carillon.domain.pace import HORIZON_SECONDS, MOST_DEFERRED_SECONDS, RatePolicy
from carillon.domain.targets import Held, Rates, endpoint_of
from carillon.outbound.admission import Admissions
from carillon.outbound.breakers import NoBreakers
from carillon.outbound.targets import Targets
from tests.contract.test_targets import Fleet, fleet
from tests.support.dispatches import LoopClock, claim
from tests.support.waiting import until

__all__ = ["fleet"]
RATES = Rates(
    {"twilio": RatePolicy(per_second=40.0), "hooks": RatePolicy(endpoint_per_second=20.0)}, {"acme": 10.0, "*": 500.0}
)


class TurnClock(LoopClock):
    """Real time that stands still until the loop goes on, so that an answer and its reader mean the same moment.

    On a busy machine a process may stand still between the two: delays would then count from the wrong moment.
    """

    _now: float | None = None

    def monotonic(self) -> float:
        if self._now is None:
            self._now = super().monotonic()
            asyncio.get_running_loop().call_soon(self._go_on)
        return self._now

    def _go_on(self) -> None:
        self._now = None


CLOCK = TurnClock()


class Vendor:
    """A provider that nobody calls here."""

    learns_rates = True

    async def send(self, dispatch: object) -> Outcome:
        raise AssertionError(dispatch)

    async def aclose(self) -> None:
        """Nothing is held."""


class Hooks(Vendor):
    def endpoint(self, address: str | None) -> str | None:
        return endpoint_of(str(address))


def admissions(home: Fleet) -> list[Admissions]:
    """Two replicas in real time over the same store; where there is none, one."""
    providers = {"twilio": Vendor(), "fcm": Vendor(), "hooks": Hooks()}
    return [
        Admissions(providers, NoBreakers(), targets, CLOCK)
        for targets in (
            Targets(
                home.store,
                {"*": BreakerPolicy()},
                service="test",
                clock=CLOCK,
                observer=home.events.append,
                rates=RATES,
                refresh_seconds=0.05,
            )
            for _ in home.replicas
        )
    ]


_tokens = iter(range(1, 1_000_000))


def claims(number: int, lane: int = 0, *, host: str = "a", tenant: str | None = None) -> list[Claim]:
    return [claim(token=next(_tokens), address=f"https://{host}/", tenant_id=tenant, lane=lane) for _ in range(number)]


async def admitted(at: Admissions, provider: str, **about: str) -> Claim:
    """A claim that may be called; a store that answers late costs places, so that it may take a few tries."""
    found: list[Claim] = []

    async def tried() -> bool:
        found.extend((await at.admit_many(provider, claims(1, 0, **about))).go)
        return bool(found)

    await until(tried, timeout=20, what=f"a place at {provider}")
    return found[0]


async def starts(asking: list[Admissions], provider: str, seconds: float, **about: str) -> list[float]:
    """Ask on every replica again and again, as workers do, and write down when calls would start.

    A moment counts for `seconds` if somebody asked for it: an answer covers the time up to the horizon.
    """
    found: list[float] = []

    async def work(at: Admissions) -> None:
        covered, asked_at = 0.0, CLOCK.monotonic()
        while covered < seconds:
            said = await at.admit_many(provider, claims(30, 0, **about))
            now = CLOCK.monotonic()
            covered += min(now - asked_at, HORIZON_SECONDS / 2)
            asked_at = now
            found.extend(now + said.delays.get(one.token, 0.0) for one in said.go)
            assert len(said.go) + len(said.held) == 30
            await asyncio.sleep(0.03)

    await asyncio.gather(*map(work, asking))
    return sorted(found)


def most_in_a_second(moments: list[float]) -> int:
    return max(sum(1 for other in moments if at <= other < at + 1.0) for at in moments)


@pytest.mark.parametrize(
    ("provider", "about", "limit"),
    [("twilio", {}, 40), ("hooks", {"host": "b"}, 20), ("fcm", {"tenant": "acme"}, 10)],
    ids=["provider", "endpoint", "tenant"],
)
async def test_a_fleet_keeps_a_rate_in_every_second(
    fleet: Fleet, provider: str, about: dict[str, str], limit: int
) -> None:
    found = await starts(admissions(fleet), provider, 2.5, **about)
    assert most_in_a_second(found) <= limit
    assert len(found) >= 2.5 * limit * 0.5, "and uses it"
    first = [at for at in found if at < found[0] + 0.25]
    assert len(first) <= limit * 0.25 + 1, "smooth from the first moment on, no burst"


async def test_control_replicas_that_share_nothing_exceed_the_rate(fleet: Fleet) -> None:
    alone = [one for _ in range(2) for one in admissions(Fleet(None, 1))]
    assert most_in_a_second(await starts(alone, "twilio", 2.0)) > 60
    assert fleet.events == []


async def test_a_call_without_a_place_is_held_until_its_turn(fleet: Fleet) -> None:
    (first, *_) = admissions(fleet)
    said = await first.admit_many("hooks", claims(100))
    assert len(said.go) <= 11
    assert all(held.rate and held.target == "hooks@a:443" for _, held in said.held)
    turns = [held.seconds or 0.0 for _, held in said.held]
    assert turns == sorted(turns)
    assert turns[-1] - turns[0] == pytest.approx((len(turns) - 1) / 19, rel=0.2), "each gets a turn of its own"
    urgent = await first.admit_many("hooks", claims(1, 1))
    waits = [held.seconds or 0.0 for _, held in urgent.held]
    assert not waits or waits[0] < turns[5], "a lane does not wait behind another lane's calls"
    assert (await admitted(first, "hooks", host="other")).address == "https://other/"


async def test_no_turn_is_hours_away(fleet: Fleet) -> None:
    (first, *_) = admissions(fleet)
    held = (await first.admit_many("fcm", claims(5000, tenant="acme"))).held
    assert max(one.seconds or 0.0 for _, one in held) <= MOST_DEFERRED_SECONDS


async def test_too_many_slows_one_endpoint_for_every_replica_and_no_neighbour(fleet: Fleet) -> None:
    asking = admissions(fleet)
    one, other = asking[0], asking[-1]
    busy = await admitted(one, "hooks", host="busy")
    await one.record("hooks", [(busy, Throttled("HTTP 429", retry_after=120.0))])
    await asyncio.sleep(0.1)
    (held,) = (await other.admit_many("hooks", claims(1, host="busy"))).held
    assert 110.0 < (held[1].seconds or 0.0) <= 120.0
    alone = await other.admit("hooks", claims(1, host="busy")[0])
    assert isinstance(alone, Held)
    assert alone.rate
    assert (await admitted(other, "hooks", host="calm")).address == "https://calm/"
    (told,) = (each for each in fleet.events if isinstance(each, TargetSlowed))
    assert (told.provider, told.endpoint) == ("hooks", "busy:443")
    assert told.pause_seconds == pytest.approx(120.0, abs=1.0)


async def test_a_vendor_that_complains_is_called_at_a_lower_rate_and_then_faster(fleet: Fleet) -> None:
    asking = admissions(fleet)
    said = await asking[0].admit_many("fcm", claims(200))
    assert len(said.go) == 200, "no limit is known yet"
    await asking[0].record("fcm", [(said.go[0], Throttled("429", retry_after=0.0))] * 20)
    await asyncio.sleep(0.1)
    found = await starts(asking, "fcm", 1.5)
    assert 60 <= most_in_a_second(found) <= 150


@pytest.mark.parametrize("outcome", [Throttled("one device", 60.0, "device_quota"), Sent(), Unavailable("down")])
async def test_other_answers_slow_nobody(fleet: Fleet, outcome: Outcome) -> None:
    (first, *_) = admissions(fleet)
    (one,) = (await first.admit_many("fcm", claims(1))).go
    await first.record("fcm", [(one, outcome)])
    assert len((await first.admit_many("fcm", claims(100))).go) == 100


async def test_an_endpoint_that_is_down_may_ask_for_a_pause(fleet: Fleet) -> None:
    (first, *_) = admissions(fleet)
    one = await admitted(first, "hooks", host="down")
    await first.record("hooks", [(one, Unavailable("HTTP 503", "http_503", retry_after=40.0))])
    assert len((await first.admit_many("hooks", claims(1, host="down"))).held) == 1


async def test_a_call_alone_waits_for_its_place(fleet: Fleet) -> None:
    (first, *_) = admissions(fleet)
    planned: list[float] = []
    for one in claims(15):
        said = await first.admit("hooks", one)
        if isinstance(said, float):
            assert 0.0 <= said <= HORIZON_SECONDS
            planned.append(CLOCK.monotonic() + said)
    assert planned, "some of them get a place"
    assert min((late - early for early, late in pairwise(planned)), default=1.0) > 0.02, "one behind the other"
