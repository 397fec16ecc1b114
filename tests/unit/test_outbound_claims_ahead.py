"""How many claims a process holds ahead of the places of a group: as many as its endpoint uses up."""

import pytest

from carillon.domain.claims import Claim
from carillon.domain.groups import Groups
from carillon.outbound.places import MOST_AHEAD, REVIEW_SECONDS, Places
from tests.support.clocks import ManualClock
from tests.unit.test_outbound_places import CAP, claims, tokens


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def places(clock: ManualClock) -> Places:
    return Places({"webhook": Groups(by="endpoint", cap=CAP)}, clock, 1000)


def starved(places: Places, calling: list[Claim]) -> list[Claim]:
    """All calls end with nothing ahead; the next claim is asked and brings as many as the process wants."""
    assert places.ended(calling) == []
    places.asking()
    found = claims(range(1000, 1000 + CAP + places.ahead("webhook")[7]), ahead=True)
    assert places.admit(found) == (found[:CAP], [])
    places.answered()
    return found


@pytest.mark.req("P-1080")
def test_claims_ahead_of_a_fast_endpoint_grow(places: Places) -> None:
    """A call of a millisecond ends long before the next claim is answered."""
    held = claims(range(CAP))
    places.admit(held)
    for times in (2, 4, 8, MOST_AHEAD, MOST_AHEAD):
        while len(held) > CAP:
            assert places.ended(held[:CAP]) == held[CAP : 2 * CAP]
            held = held[CAP:]
        held = starved(places, held)
        assert places.ahead("webhook") == {7: times * CAP}
        assert len(held) == (1 + times) * CAP
    assert places.ended(held[:1]) == held[CAP : CAP + 1]


@pytest.mark.req("P-1082")
def test_what_is_too_much_ahead_of_a_slow_endpoint_goes_back(places: Places, clock: ManualClock) -> None:
    held = claims(range(CAP))
    places.admit(held)
    for _ in range(3):
        held = starved(places, held[:CAP])
        for at in range(CAP, len(held), CAP):
            assert places.ended(held[at - CAP : at]) == held[at : at + CAP]
        held = held[-CAP:]
    held = starved(places, held)
    assert len(held) == CAP + MOST_AHEAD * CAP
    assert places.review() == [], "so far they were used up"
    assert places.ended(held[:CAP]) == held[CAP : 2 * CAP]
    assert places.review() == [], "one look a second"
    clock.now += REVIEW_SECONDS
    surplus = places.review()
    assert surplus == held[: -len(surplus) - 1 : -1], "the newest go back"
    assert len(held) - 2 * CAP - len(surplus) == MOST_AHEAD * CAP // 2
    clock.now += REVIEW_SECONDS
    assert len(places.review()) == (MOST_AHEAD // 2 - 1) * CAP, "nothing ended in that second"
    assert places.ahead("webhook") == {7: CAP}
    clock.now += REVIEW_SECONDS
    assert places.review() == []
    assert tokens(places.ended(held[CAP : 2 * CAP])) == [claim.token for claim in held[2 * CAP : 3 * CAP]]


@pytest.mark.req("P-1082")
def test_claims_beyond_the_caps_of_all_groups_together_are_bounded() -> None:
    places = Places({"webhook": Groups(by="endpoint", cap=CAP)}, ManualClock(), 3)
    groups = {-7: claims(range(CAP)), -8: claims(range(10, 10 + CAP), group=-8)}
    for held in groups.values():
        places.admit(held)
        places.ended(held)
    places.asking()
    assert places.ahead("webhook") == {7: CAP + 2, 8: CAP + 1}, (
        "twice the cap for one of them, what is left for the other"
    )
    places.admit(claims(range(100, 104 + CAP), ahead=True))
    places.answered()
    assert places.ahead("webhook") == {7: CAP + 2, 8: CAP + 1}, "what is ahead already counts"
