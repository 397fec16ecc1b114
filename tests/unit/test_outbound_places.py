"""Places of groups with a cap: who calls now, who waits for whose end, and when the worker is told to claim."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from carillon.domain.breaker import Admission
from carillon.domain.claims import Claim, Settlement
from carillon.domain.groups import Groups, endpoint_name, group_number
from carillon.domain.outcomes import Sent
from carillon.domain.targets import HeldTarget, Waiting
from carillon.domain.verdicts import Defer, Finish
from carillon.outbound.places import Places
from carillon.upkeep.api.waits import Waits
from tests.support.clocks import ManualClock
from tests.support.dispatches import claim as built
from tests.support.waiting import some_turns
from tests.unit.test_outbound_attempt import CLAIM, Desk, says

CAP = 2
GROUP = -7


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def places(clock: ManualClock) -> Places:
    return Places({"webhook": Groups(by="endpoint", cap=CAP)}, clock, 1000)


def claims(tokens: range, *, ahead: bool = False, group: int = GROUP) -> list[Claim]:
    return [built(token=token, provider="webhook", group=group, ahead=ahead) for token in tokens]


def tokens(found: object) -> list[int]:
    assert isinstance(found, list)
    return [claim.token for claim in found]


def test_groups_without_a_cap_are_none_of_its_business(places: Places) -> None:
    given = claims(range(3), group=5)
    assert places.admit(given) == (given, [])
    assert places.ended(given) == []
    assert places.ahead("webhook") == {}
    assert not places.watching


def test_a_claim_ahead_takes_over_the_place_of_a_call_that_ended(places: Places) -> None:
    calling, ahead = claims(range(2)), claims(range(2, 4), ahead=True)
    assert places.admit([*calling, *ahead]) == (calling, [])
    assert places.ahead("webhook") == {7: CAP}
    assert tokens(places.ended(calling[:1])) == [2]
    assert tokens(places.ended(calling[1:])) == [3]
    assert places.ended(ahead) == []
    places.free(ahead)
    assert places.ahead("webhook") == {}


def test_a_claim_ahead_of_a_call_that_has_ended_meanwhile_goes_back(places: Places) -> None:
    ahead = claims(range(1), ahead=True)
    assert places.admit(ahead) == ([], ahead)


async def full(places: Places) -> list[Claim]:
    """A group at its cap, of which more waits, and one of its calls has ended with nothing to follow it."""
    calling = claims(range(CAP))
    places.admit(calling)
    assert places.watching
    assert places.ended(calling[:1]) == []
    assert places.hungry.is_set(), "the worker is told to claim"
    places.hungry.clear()
    return calling


async def settling(places: Places, claims: list[Claim]) -> "asyncio.Task[None]":
    task = asyncio.create_task(places.may_settle(claims))
    await some_turns()
    return task


async def test_the_next_claim_takes_the_place_of_a_call_that_has_ended(places: Places) -> None:
    calling = await full(places)
    settlement = await settling(places, calling[:1])
    places.asking()
    assert places.ahead("webhook") == {7: 2 * CAP}, "the call ended before its follower came"
    following, other = claims(range(2, 4), ahead=True)
    assert places.admit([following, other]) == ([following], []), "one place, one call"
    assert not settlement.done(), "until the process has seen the whole answer"
    places.answered()
    await settlement
    assert places.ahead("webhook") == {7: 2 * CAP}
    places.settled(calling[:1])
    assert tokens(places.ended(calling[1:])) == [other.token]


async def test_a_place_that_nobody_takes_is_free_before_its_settlement_is_sent(places: Places) -> None:
    calling = await full(places)
    places.ended(calling[1:])
    settlement = await settling(places, calling)
    places.asking()
    places.answered()
    await settlement
    late = claims(range(2, 3), ahead=True)
    assert places.admit(late) == ([], late), "another process may have the place by now"
    places.settled(calling)
    places.hungry.clear()
    assert not places.watching


async def test_a_settlement_waits_for_a_claim_that_was_asked_after_its_call(places: Places) -> None:
    calling = claims(range(CAP))
    places.admit(calling)
    places.asking()
    places.ended(calling[:1])
    settlement = await settling(places, calling[:1])
    places.answered()
    await some_turns()
    assert not settlement.done(), "this answer was on its way"
    places.asking()
    places.answered()
    await settlement


async def test_a_settlement_that_has_nothing_to_wait_for_is_sent_at_once(places: Places) -> None:
    alone, others = claims(range(1)), claims(range(1, 4), group=5)
    places.admit([*alone, *others])
    places.ended([*alone, *others])
    assert (await settling(places, [*alone, *others])).done()


async def test_a_settlement_does_not_wait_for_a_worker_that_claims_no_more(places: Places) -> None:
    calling = await full(places)
    settlement = await settling(places, calling[:1])
    places.give_up()
    await settlement
    places.ended(calling[1:])
    assert (await settling(places, calling[1:])).done()


async def test_a_settlement_does_not_wait_long(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carillon.outbound.places.KEPT_SECONDS", 0.01)
    await places.may_settle((await full(places))[:1])


def test_below_its_cap_a_group_uses_up_its_claims_ahead(places: Places) -> None:
    calling, ahead = claims(range(CAP - 1)), claims(range(2, 4), ahead=True)
    places.admit([*calling, *ahead])
    assert places.ahead("webhook") == {}, "more leases would keep the free place taken"
    places.ended(calling)
    places.settled(calling)
    assert not places.hungry.is_set()
    places.ended(ahead[:1])
    places.settled(ahead[:1])
    assert places.hungry.is_set()
    assert places.ahead("webhook") == {7: CAP}


def test_a_group_that_had_nothing_more_waiting_tells_nobody(places: Places) -> None:
    calling = claims(range(CAP - 1))
    places.admit(calling)
    places.ended(calling)
    places.settled(calling)
    assert not places.hungry.is_set()
    assert not places.watching


def test_at_the_end_of_the_process_what_waits_goes_back(places: Places) -> None:
    places.admit([*claims(range(1)), *claims(range(1, 3), ahead=True)])
    assert tokens(places.give_up()) == [1, 2]
    assert places.ended(claims(range(1))) == []


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://Hooks.Example.com/a?b=c", "hooks.example.com:443"),
        ("http://hooks.example.com/x", "hooks.example.com:80"),
        ("https://hooks.example.com:8443/x", "hooks.example.com:8443"),
        ("https://user:secret@[::1]:9/x", "[::1]:9"),
        ("https://host:99999/x", "https://host:99999/x"),
        ("no url", "no url"),
        ("", ""),
    ],
)
def test_an_endpoint_is_its_host_and_port(url: str, name: str) -> None:
    assert endpoint_name(url) == name


def test_groups_have_numbers_of_their_own() -> None:
    names = [(tenant, name) for tenant in (None, "a", "ab", "b") for name in ("", "b", "bb", "host:443")]
    numbers = [group_number(*each) for each in names]
    assert len(set(numbers)) == len(numbers)
    assert numbers[0] == 0
    assert all(0 < number < 2**63 for number in numbers[1:])


def test_two_tenants_at_one_endpoint_are_two_groups_with_a_cap() -> None:
    groups = Groups(by="endpoint", cap=CAP, address="https://ours.example.com/")
    numbers = {
        groups.number("a", "x", "https://hooks.example.com/1"),
        groups.number("a", "y", "https://hooks.example.com/2"),
        groups.number("b", "x", "https://hooks.example.com/1"),
        groups.number("b", "x", None),
    }
    assert len(numbers) == 3
    assert all(number < 0 for number in numbers)
    assert Groups().number("a", "x", "y") == Groups().number("a", "z", None) == group_number("a")
    assert Groups(by="person").number("a", "x", None) != Groups(by="person").number("a", "y", None)
    assert Groups(by="none").number("a", "x", None) == 0


@pytest.mark.req("P-701")
def test_a_cap_holds_for_routes_without_a_tenant_and_counts_one_providers_calls() -> None:
    mail, texts = Groups(provider="mail", cap=CAP), Groups(provider="texts", cap=CAP)
    for tenant in (None, "a", "b"):
        assert mail.number(tenant, "x", None) < 0, "only a number below zero has a cap"
        assert mail.number(tenant, "x", None) == mail.number(tenant, "y", "z")
        assert mail.number(tenant, "x", None) != texts.number(tenant, "x", None)
    assert len({mail.number(tenant, "x", None) for tenant in (None, "a", "b")}) == 3
    for by in ("none", "person"):
        first, second = Groups(provider="mail", by=by, cap=CAP), Groups(provider="texts", by=by, cap=CAP)
        assert first.number(None, "x", None) < 0
        assert first.number("a", "x", None) != second.number("a", "x", None)
    hooks, others = Groups(provider="hooks", by="endpoint", cap=CAP), Groups(provider="others", by="endpoint", cap=CAP)
    assert hooks.number("a", "x", "https://a.example/") == others.number("a", "x", "https://a.example/")


@pytest.mark.req("P-703")
@pytest.mark.parametrize(
    ("groups", "tenant", "said"),
    [
        (Groups(provider="mail", cap=CAP), "a", "its tenant is at 2 of 2 calls"),
        (Groups(provider="mail", cap=CAP), None, "mail without a tenant is at 2 of 2 calls"),
        (Groups(provider="mail", by="none", cap=CAP), "a", "mail is at 2 of 2 calls"),
        (Groups(provider="mail", by="person", cap=CAP), "a", "its person is at 2 of 2 calls"),
    ],
)
def test_what_a_full_group_is_called(groups: Groups, tenant: str | None, said: str) -> None:
    number = groups.number(tenant, "user:ann", None)
    assert groups.waits_for(number, CAP) == groups.waits_for(number, CAP + 1) == said
    assert groups.waits_for(number, CAP - 1) is None


@pytest.mark.req("P-702")
def test_a_route_from_a_provider_without_caps_gets_its_group_before_it_is_called() -> None:
    groups = {"mail": Groups(provider="mail", cap=CAP), "texts": Groups(provider="texts")}
    places = Places(groups, ManualClock())
    number = groups["mail"].number(None, "user:ada", None)
    own = built(token=1, provider="mail", group=number, lease=9, recipient_ref="user:ada")
    free = built(token=2, provider="texts", group=5, lease=9)
    assert places.without_strays([own, free]) == ([own, free], [])
    stray = built(token=3, provider="mail", group=5, lease=9, tenant_id="a")
    sent = built(token=4, provider="mail", group=5, lease=9, abandoned=True)
    kept, strays = places.without_strays([own, stray, sent, free])
    assert tokens(kept) == [1, 4, 2], "what another worker may have sent is called at once"
    (settlement,) = strays
    assert (settlement.claim.token, settlement.verdict) == (3, Defer(0.0))
    assert settlement.group == groups["mail"].number("a", stray.recipient_ref, stray.address)


@pytest.mark.req("P-881")
def test_a_route_from_another_provider_with_caps_gets_its_group_before_it_is_called() -> None:
    groups = {name: Groups(provider=name, cap=CAP) for name in ("mail", "relay")} | {"texts": Groups(provider="texts")}
    places = Places(groups, ManualClock())
    own = {name: groups[name].number("a", "user:ada", None) for name in groups}
    at_home = [
        built(token=token, provider=name, group=number, lease=9, tenant_id="a")
        for token, (name, number) in enumerate(own.items())
    ]
    assert places.without_strays(at_home) == (at_home, []), "the control: nobody has moved"
    moved = built(token=3, provider="relay", group=own["mail"], lease=9, tenant_id="a")
    left = built(token=4, provider="texts", group=own["mail"], lease=9, tenant_id="a")
    live = built(token=5, provider="relay", group=own["mail"], tenant_id="a")
    kept, strays = places.without_strays([moved, left, live])
    assert tokens(kept) == [5], "what has no lease beside its row stays where its row says"
    assert [(one.claim.token, one.group) for one in strays] == [(3, own["relay"]), (4, own["texts"])]
    places.admit([built(token=6, provider="texts", group=own["texts"], lease=9, tenant_id="a")])
    assert not places.full(), "a provider without caps has no full groups"


@pytest.mark.req("P-881")
def test_two_providers_that_call_one_endpoint_share_its_group() -> None:
    groups = {name: Groups(provider=name, by="endpoint", cap=CAP) for name in ("hooks", "others")}
    url = "https://a.example/x"
    number = groups["hooks"].number("a", "user:ada", url)
    moved = built(token=1, provider="others", group=number, lease=9, tenant_id="a", address=url)
    assert Places(groups, ManualClock()).without_strays([moved]) == ([moved], [])


CAPPED = {name: Groups(provider=name, cap=2) for name in ("first", "second")}
HELD = msgspec.structs.replace(CLAIM, group=CAPPED["first"].number(None, "user:ada", None), lease=9)
OVER = Settlement(
    claim=HELD, verdict=Defer(0.0), provider="second", group=CAPPED["second"].number(None, "user:ada", None)
)


@pytest.mark.req("P-881")
async def test_a_route_goes_to_another_provider_with_caps_through_the_backlog() -> None:
    first, second = says(Sent()), says(Sent())
    desk = Desk(first, second, groups=CAPPED)
    assert (await desk.attempt(HELD)).verdict == Finish(), "its own provider is called"
    await desk.break_provider("first")
    assert await desk.attempt(HELD) == OVER
    assert not second.asked, "its places are counted there"
    # What another worker may have sent is called: the backlog would forget that.
    assert (await desk.attempt(msgspec.structs.replace(HELD, abandoned=True))).verdict == Finish()
    assert (await Desk(first, second).attempt(HELD)).verdict == Finish(), (
        "the control: without caps it is called at once"
    )


@pytest.mark.req("P-881")
async def test_no_route_goes_to_and_fro_between_two_providers_that_are_down() -> None:
    desk = Desk(says(Sent()), says(Sent()), groups=CAPPED)
    await desk.break_provider("first")
    await desk.break_provider("second")
    held = await desk.attempt(HELD)
    assert isinstance(held.verdict, Defer)
    assert (held.provider, held.verdict.delay > 0.0) == (None, True), "both are open: it waits where it is"
    desk.clock.now += 61.0
    assert await desk.breakers.admit("first") is Admission.PROBE, "another message probes the first"
    held = await desk.attempt(HELD)
    assert held.provider is None, "both wait for a probe"
    await desk.breakers.record("first", ok=False)
    assert await desk.attempt(HELD) == OVER, "the second may be probed while the first is open"


@pytest.mark.req("P-883")
async def test_a_route_waits_for_breakers_while_no_provider_of_its_channel_may_be_called() -> None:
    desk = Desk(says(Sent()), says(Sent()))

    async def nothing_held(routes: Sequence[Waiting]) -> list[list[HeldTarget]]:
        return [[] for _ in routes]

    waits = Waits(nothing_held, desk.breakers, {"email": ("first", "second")}, desk.clock)
    mail, text = (
        Waiting(channel=channel, provider="first", address=None, tenant_id=None, lane=1, template_key="welcome")
        for channel in ("email", "sms")
    )
    assert await waits([mail, text]) == [None, None]
    await desk.break_provider("first")
    said = "the breaker of first is open until 1970-01-01T00:17:40.000Z"
    assert await waits([mail, text]) == [None, said], "the second one takes over"
    desk.clock.now += 5.0
    await desk.break_provider("second")
    assert await waits([mail]) == [said], "until the first probe of them"
    desk.clock.now += 56.0
    assert await waits([mail]) == [None], "the first may be probed"
