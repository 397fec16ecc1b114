"""If the vendor recognises repeats, calls that the shutdown cancels go back to the backlog, uncounted."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pytest

from carillon.domain.claims import Claim, Settlement
from carillon.domain.events import Event
from carillon.domain.groups import Groups
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.outcomes import Sent
from carillon.domain.verdicts import Bury, Defer, Finish, Retry
from carillon.outbound.in_flight import InFlight
from carillon.outbound.next_calls import NextCalls
from carillon.outbound.places import Places
from carillon.outbound.settle import Settler
from tests.support.dispatches import claim as built
from tests.support.waiting import until
from tests.unit.test_outbound_attempt import POLICY, Desk, HangingVendor, says
from tests.unit.test_outbound_concurrent_calls import Kept

LANES = Lanes({"standard": Lane(rank=1, queue_name="standard")})
CAPPED: Mapping[str, Groups] = {"first": Groups(provider="first", by="tenant", cap=1)}


async def cut_off(*, give_back: bool) -> Settlement:
    vendor = HangingVendor(Sent)
    desk = Desk(vendor, give_back=give_back)
    attempt = asyncio.create_task(desk.attempt())
    while not vendor.asked:  # noqa: ASYNC110 - it is asked within a few turns of the loop
        await asyncio.sleep(0)
    desk.attempts.cut_off()
    attempt.cancel()
    return await attempt


@pytest.mark.req("S4-30")
async def test_it_is_given_back() -> None:
    with pytest.raises(asyncio.CancelledError):
        await cut_off(give_back=True)


async def test_otherwise_it_may_have_gone_out() -> None:
    settlement = await cut_off(give_back=False)
    assert settlement.note is not None
    assert (settlement.note.outcome, settlement.note.classification) == ("unknown", "shutdown")


@dataclass
class Bench:
    """Claims of a provider with one slot and of groups with one place, and the ledger that gets them back."""

    desk: Desk
    ledger: Kept = field(default_factory=Kept)
    said: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.places = Places(CAPPED, self.desk.clock)
        self.in_flight = InFlight(
            self.desk.attempts,
            Settler(self.ledger, self.said.append),
            self.desk.leases,
            self.said.append,
            places=self.places,
            next_calls=NextCalls({"first": 1}, LANES, self.desk.clock),
        )

    def start(self, *claims: Claim) -> None:
        self.desk.leases.take(claims, self.desk.clock.monotonic())
        self.in_flight.start(claims)

    async def left(self, number: int) -> None:
        async def met() -> bool:
            return self.in_flight.claims == number

        await until(met, timeout=30, what="claims that are settled")


def text(token: int, **about: object) -> Claim:
    fields: dict[str, object] = {"provider": "first", "channel": "email", "lane": 1, "message_json": '{"text":"hi"}'}
    return built(token=token, route_id=f"email:{token}", **fields | about)


@pytest.mark.req("P-1161")
async def test_what_another_worker_may_have_sent_is_decided_before_it_goes_back() -> None:
    """A deferral forgets that another worker died with the route, and the next claim would send it again."""
    policy = msgspec.structs.replace(POLICY, on_unknown="bury")
    bench = Bench(Desk(HangingVendor(Sent), policy=policy))
    bench.start(text(1), text(2, abandoned=True), text(3))
    bench.in_flight.return_waiting(["first"])
    await bench.left(1)
    settled = bench.ledger.by_token
    assert settled[2].verdict == Bury("abandoned", "a worker died holding this route")
    assert settled[2].note is not None
    assert settled[3].verdict == Defer(0.0)


@pytest.mark.req("P-1162")
async def test_a_slot_that_was_reserved_for_nothing_goes_to_the_claim_that_waits() -> None:
    vendor = says(Sent())
    bench = Bench(Desk(vendor))
    bench.in_flight.reserve({"first": 1})
    bench.start(text(1))
    assert bench.in_flight.claims == 2
    bench.in_flight.release({"first": 1})
    await bench.left(0)
    assert bench.ledger.by_token[1].verdict == Finish()


@pytest.mark.req("P-1163")
async def test_an_attempt_that_fails_by_a_bug_leaves_the_place_of_its_group() -> None:
    bench = Bench(Desk(says(Sent())))
    group = Groups(provider="first", by="tenant", cap=1).number("acme", "", None)
    about = {"tenant_id": "acme", "group": group, "recipient_ref": ""}
    bench.start(text(1, message_json="not json", **about), text(2, ahead=True, message_json="not json", **about))
    await bench.left(0)
    assert bench.places.ahead("first") == {}, "nobody calls the group any more"


@pytest.mark.req("P-1203")
async def test_what_waits_for_a_connection_goes_back_though_no_time_is_left() -> None:
    """A door that took all the time of the drain leaves none: nobody waits for the leases of what was not called."""
    bench = Bench(Desk(HangingVendor(Sent)))
    bench.start(text(1), text(2), text(3))
    await asyncio.sleep(0)
    await bench.in_flight.drain(0.0)
    assert {token: type(one.verdict) for token, one in bench.ledger.by_token.items()} == {1: Retry, 2: Defer, 3: Defer}
    assert (bench.in_flight.claims, len(bench.desk.leases)) == (0, 0)


@pytest.mark.req("P-1204")
async def test_what_was_sent_before_the_shutdown_is_not_sent_again() -> None:
    """The store of the breakers has not answered yet when the time is over."""
    bench = Bench(Desk(says(Sent()), give_back=True))
    asked = asyncio.Event()

    async def silent(_provider: str, *, ok: bool) -> None:
        assert ok
        asked.set()
        await asyncio.Event().wait()

    bench.desk.breakers.record = silent  # type: ignore[method-assign, assignment]
    bench.start(text(1))
    await asked.wait()
    await bench.in_flight.drain(0.0)
    assert bench.ledger.by_token[1].verdict == Finish()
    assert bench.in_flight.claims == 0
