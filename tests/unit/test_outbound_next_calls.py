"""Claims that wait for a slot of their provider: how many, which begins first, and what is given back."""

from collections import Counter

import pytest

from carillon.domain.claims import Claim
from carillon.domain.lanes import Lane, Lanes
from carillon.outbound.next_calls import AHEAD_SECONDS, WINDOW_SECONDS, NextCalls
from tests.support.clocks import ManualClock
from tests.support.dispatches import claim as built

SLOTS = 20
URGENT, BULK = 0, 2
LANES = Lanes({name: Lane(rank=rank, queue_name=name) for rank, name in ((URGENT, "urgent"), (BULK, "bulk"))})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def waiting(clock: ManualClock) -> NextCalls:
    return NextCalls({"twilio": SLOTS}, LANES, clock)


def claims(tokens: range, lane: int = BULK, provider: str = "twilio") -> list[Claim]:
    return [built(token=token, provider=provider, lane=lane) for token in tokens]


def tokens(found: list[Claim]) -> list[int]:
    return [claim.token for claim in found]


@pytest.mark.req("P-1087")
def test_a_provider_without_slots_of_its_own_never_waits(waiting: NextCalls) -> None:
    given = claims(range(100), provider="webhook")
    assert waiting.admit(given, Counter()) == given
    assert waiting.ahead("webhook") == 0
    assert waiting.freed("webhook", 100, Counter()) == []


@pytest.mark.req("P-1087")
def test_a_slot_that_becomes_free_goes_to_the_most_urgent_claim(waiting: NextCalls) -> None:
    kept = SLOTS // 10
    flood = claims(range(100, 100 + SLOTS - kept))
    assert waiting.admit(flood, Counter()) == flood
    calls = Counter({"twilio": SLOTS})
    assert waiting.admit(claims(range(3)), calls) == []
    assert waiting.admit(claims(range(10, 12), lane=URGENT), calls) == []
    assert waiting.waiting("twilio") == 5
    assert tokens(waiting.freed("twilio", 1, Counter({"twilio": SLOTS - 1}))) == [10]
    assert tokens(waiting.freed("twilio", kept, Counter({"twilio": SLOTS - kept}))) == [11], "the lane of floods waits"
    assert tokens(waiting.freed("twilio", 2, Counter({"twilio": SLOTS - kept - 2}))) == [0, 1]
    assert tokens(waiting.freed("twilio", 0, Counter())) == [2]


@pytest.mark.req("P-1087")
def test_what_cannot_fit_beside_the_slots_of_others_begins_alone(clock: ManualClock) -> None:
    alone = NextCalls({"twilio": 1}, LANES, clock)
    assert tokens(alone.admit(claims(range(2)), Counter())) == [0]
    assert alone.freed("twilio", 0, Counter({"twilio": 1})) == []
    assert tokens(alone.freed("twilio", 1, Counter())) == [1]


@pytest.mark.req("P-1087")
def test_as_many_wait_as_calls_end_in_a_moment(waiting: NextCalls, clock: ManualClock) -> None:
    assert waiting.ahead("twilio") == 0, "nothing is known of the vendor yet"
    waiting.freed("twilio", 50, Counter({"twilio": SLOTS}))
    clock.now += WINDOW_SECONDS / 2
    assert waiting.ahead("twilio") == 0
    clock.now += WINDOW_SECONDS / 2
    assert waiting.ahead("twilio") == round(50 / WINDOW_SECONDS * AHEAD_SECONDS)
    waiting.freed("twilio", 10_000, Counter({"twilio": SLOTS}))
    clock.now += WINDOW_SECONDS
    assert waiting.ahead("twilio") == SLOTS, "never more than it has slots"
    clock.now += WINDOW_SECONDS
    assert waiting.ahead("twilio") == 0, "a vendor that has stopped answering keeps nothing waiting"


@pytest.mark.req("P-1087")
def test_what_waits_is_given_up_by_provider_or_whole(clock: ManualClock) -> None:
    waiting = NextCalls({"twilio": 1, "fcm": 1}, LANES, clock)
    calls = Counter({"twilio": 1, "fcm": 1})
    waiting.admit([*claims(range(2)), *claims(range(10, 13), provider="fcm")], calls)
    assert tokens(waiting.give_up(["twilio", "nobody"])) == [0, 1]
    assert (waiting.waiting("twilio"), waiting.waiting("fcm")) == (0, 3)
    assert tokens(waiting.give_up()) == [10, 11, 12]
    assert waiting.freed("fcm", 1, Counter()) == []


@pytest.mark.req("P-1160")
def test_where_another_provider_is_called_its_slots_count_and_not_the_own(clock: ManualClock) -> None:
    waiting = NextCalls({"first": 2, "second": 20}, LANES, clock)
    waiting.follow({"first": "second", "second": "second"})
    given = claims(range(10), provider="first", lane=URGENT)
    assert waiting.admit(given, Counter()) == given
    assert waiting.waiting("first") == 0


@pytest.mark.req("P-1160")
def test_calls_that_others_make_take_slots_too(clock: ManualClock) -> None:
    waiting = NextCalls({"first": SLOTS, "second": SLOTS}, LANES, clock)
    waiting.follow({"first": "second", "second": "second"})
    own = claims(range(SLOTS), provider="second", lane=URGENT)
    others = claims(range(100, 105), provider="first", lane=URGENT)
    begun = waiting.admit([*own, *others], Counter())
    assert tokens(begun) == [*range(100, 105), *range(SLOTS - 5)]
    calls = Counter({"first": 5, "second": SLOTS - 5})
    assert waiting.admit(claims(range(200, 201), provider="second", lane=URGENT), calls) == []
    calls["first"] -= 2
    assert tokens(waiting.freed("first", 2, calls)) == [SLOTS - 5, SLOTS - 4], "a call of another frees a slot too"
    waiting.follow({"first": "first", "second": "second"})
    calls = Counter({"first": 5, "second": SLOTS - 1})
    assert tokens(waiting.freed("second", 1, calls)) == [SLOTS - 3], "the first is called itself again"


@pytest.mark.req("P-1165")
def test_a_lane_without_its_share_of_the_slots_goes_before_a_flood(waiting: NextCalls) -> None:
    flood = claims(range(1000), lane=URGENT)
    calling = waiting.admit(flood, Counter())
    assert len(calling) == SLOTS
    assert waiting.admit(claims(range(2000, 2100)), Counter({"twilio": SLOTS})) == []
    assert waiting.lacks("twilio", BULK) == SLOTS // 2
    for _ in range(SLOTS // 2):
        calling += waiting.ended([calling.pop(0)], Counter({"twilio": SLOTS - 1}))
    assert [claim.lane for claim in calling].count(BULK) == SLOTS // 2, "slots become free one by one"
    calling += waiting.ended([calling.pop(0)], Counter({"twilio": SLOTS - 1}))
    assert calling[-1].lane == URGENT, "a lane that has its share waits for those before it"


@pytest.mark.req("P-1165")
def test_strict_lanes_have_no_shares(clock: ManualClock) -> None:
    waiting = NextCalls({"twilio": SLOTS}, Lanes(LANES.by_name, strict=True), clock)
    waiting.admit(claims(range(SLOTS + 1), lane=URGENT), Counter())
    waiting.admit(claims(range(100, 101)), Counter({"twilio": SLOTS}))
    assert waiting.lacks("twilio", BULK) == 0
    (following,) = waiting.freed("twilio", 1, Counter({"twilio": SLOTS - 1}))
    assert following.lane == URGENT
