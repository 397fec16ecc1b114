"""Many concurrent calls in one task: each is gated and decided on its own, and settled while others run."""

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec
import pytest

from carillon.domain.breaker import Admission, State
from carillon.domain.claims import Claim, Dispatch, Settled, Settlement
from carillon.domain.events import Event, Trouble
from carillon.domain.lanes import Lanes
from carillon.domain.outcomes import Outcome, Refused, Sent, Unavailable
from carillon.domain.verdicts import Bury, Defer, Finish, Retry
from carillon.outbound import calls
from carillon.outbound.in_flight import InFlight
from carillon.outbound.next_calls import NextCalls
from carillon.outbound.places import Places
from carillon.outbound.settle import Settler
from tests.support.waiting import until
from tests.unit.test_outbound_attempt import POLICY, SUPPRESSION, Desk, Vendor
from tests.unit.test_outbound_batch import claims
from tests.unit.test_outbound_leases import Unused

PATIENCE = 40.0
Tell = Callable[[Outcome], None]


class StartingVendor(Vendor):
    """Sets out and answers when the test says so; what is sent alone is sent at once."""

    def __init__(self) -> None:
        super().__init__(Sent)
        self.under_way: dict[int, Tell] = {}
        self.given_up: list[int] = []

    def start(self, dispatch: Dispatch, tell: Tell) -> Callable[[], None]:
        token = dispatch.claim.token
        self.under_way[token] = tell
        return lambda: self.given_up.append(token)


class Kept(Unused):
    """What was settled, in its order."""

    def __init__(self) -> None:
        self.batches: list[list[Settlement]] = []

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self.batches.append(list(settlements))
        return [Settled.APPLIED for _ in settlements]

    @property
    def by_token(self) -> dict[int, Settlement]:
        found = [one for batch in self.batches for one in batch]
        assert len({one.claim.token for one in found}) == len(found), "settled twice"
        return {one.claim.token: one for one in found}


class Bench:
    """Everything between a claim and the ledger."""

    def __init__(self, vendor: StartingVendor, desk: Desk | None = None) -> None:
        self.vendor = vendor
        self.desk = desk or Desk(vendor)
        self.ledger = Kept()
        self.said: list[Event] = []
        settler = Settler(self.ledger, self.said.append)
        self.in_flight = InFlight(
            self.desk.attempts,
            settler,
            self.desk.leases,
            self.said.append,
            places=Places({}, self.desk.clock),
            next_calls=NextCalls({}, Lanes({}), self.desk.clock),
        )

    async def begin(self, batch: list[Claim], *, lost: Sequence[Claim] = (), setting_out: int | None = None) -> None:
        self.desk.leases.take(batch, self.desk.clock.monotonic())
        for claim in lost:
            self.desk.leases.drop([claim])
        self.in_flight.start(batch)
        expected = len(batch) if setting_out is None else setting_out
        await self.until(lambda: len(self.vendor.under_way) == expected, "calls that have set out")

    def answer(self, token: int, outcome: Outcome) -> None:
        self.vendor.under_way[token](outcome)

    async def end(self) -> dict[int, Settlement]:
        await self.until(lambda: self.in_flight.claims == 0, "claims that are settled")
        assert (len(self.desk.leases), self.in_flight.calls["first"]) == (0, 0)
        return self.ledger.by_token

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        async def met() -> bool:
            return condition()

        await until(met, timeout=PATIENCE, what=what)


class StandingStill(StartingVendor):
    """While the first call sets out, the whole process stands still for longer than its calls may take."""

    def start(self, dispatch: Dispatch, tell: Tell) -> Callable[[], None]:
        time.sleep(0.05)
        return super().start(dispatch, tell)


@pytest.mark.req("P-573")
async def test_of_a_batch_one_call_at_most_comes_too_late() -> None:
    vendor = StandingStill()
    bench = Bench(vendor, Desk(vendor, policy=msgspec.structs.replace(POLICY, timeout_seconds=0.02)))
    batch = claims(3)
    await bench.begin(batch, setting_out=1)
    bench.answer(batch[0].token, Sent())
    settled = await bench.end()
    assert [type(settled[claim.token].verdict) for claim in batch] == [Finish, Defer, Defer]
    assert len(vendor.under_way) == 1


async def test_each_ends_as_its_own_call_did() -> None:
    bench = Bench(StartingVendor())
    await bench.begin(claims(3))
    outcomes: list[Outcome] = [Sent("x-1"), Refused("bad"), Unavailable("later")]
    for token, outcome in enumerate(outcomes, 1):
        bench.answer(token, outcome)
    settled = await bench.end()
    assert [type(settled[token].verdict) for token in (1, 2, 3)] == [Finish, Bury, Retry]
    notes = [settled[token].note for token in (1, 2, 3)]
    assert [note and note.outcome for note in notes] == ["sent", "refused", "unavailable"]
    assert notes[0] is not None
    assert notes[0].provider_message_id == "x-1"
    assert bench.vendor.asked == [], "none of them needed a task"


async def test_what_has_ended_is_settled_while_others_are_under_way() -> None:
    bench = Bench(StartingVendor())
    await bench.begin(claims(3))
    bench.desk.clock.now += 0.25
    bench.answer(2, Sent())
    await bench.until(lambda: bench.in_flight.claims == 2, "one that is settled")
    assert bench.in_flight.calls["first"] == 2
    (settlement,) = bench.ledger.by_token.values()
    assert settlement.note is not None
    assert settlement.claim.token == 2
    assert settlement.note.duration_ms == pytest.approx(250.0)
    bench.answer(1, Sent())
    bench.answer(3, Sent())
    assert set(await bench.end()) == {1, 2, 3}
    assert [len(batch) for batch in bench.ledger.batches] == [1, 2], "those that end together are written together"


async def test_an_answer_before_the_call_has_set_out_counts_and_a_second_one_does_not() -> None:
    class Hasty(StartingVendor):
        def start(self, dispatch: Dispatch, tell: Tell) -> Callable[[], None]:
            tell(Sent())
            tell(Refused("again"))
            return super().start(dispatch, tell)

    bench = Bench(Hasty())
    await bench.begin(claims(2))
    settled = await bench.end()
    assert {type(one.verdict) for one in settled.values()} == {Finish}
    bench.answer(1, Refused("and again"))
    assert bench.vendor.given_up == []


async def test_a_providers_bug_ends_in_its_own_routes_history() -> None:
    class Broken(StartingVendor):
        def start(self, dispatch: Dispatch, tell: Tell) -> Callable[[], None]:
            give_up = super().start(dispatch, tell)
            if dispatch.claim.token == 2:
                raise IndexError("a bug of the adapter")
            return give_up

    bench = Bench(Broken())
    await bench.begin(claims(3))
    bench.answer(1, Sent())
    bench.answer(3, Sent())
    settled = await bench.end()
    assert [type(settled[token].verdict) for token in (1, 2, 3)] == [Finish, Retry, Finish]
    note = settled[2].note
    assert note is not None
    assert "IndexError" in (note.error or "")


async def test_what_is_not_plain_finds_its_way_alone() -> None:
    bench = Bench(StartingVendor())
    batch = claims(4)
    batch[0] = msgspec.structs.replace(batch[0], suppression_json=SUPPRESSION)
    batch[1] = msgspec.structs.replace(batch[1], channel="sms")
    await bench.begin(batch, lost=[batch[2]], setting_out=1)
    bench.answer(4, Sent())
    await bench.until(lambda: bench.in_flight.claims == 0, "claims that are settled")
    verdicts = {token: type(one.verdict) for token, one in bench.ledger.by_token.items()}
    # The chain of a channel without providers is as good as open.
    assert verdicts == {1: Bury, 2: Defer, 3: Defer, 4: Finish}


async def test_behind_an_open_breaker_nobody_sets_out() -> None:
    bench = Bench(StartingVendor())
    await bench.desk.break_provider("first")
    await bench.begin(claims(3), setting_out=0)
    settled = await bench.end()
    assert {type(one.verdict) for one in settled.values()} == {Defer}
    assert (bench.vendor.under_way, bench.vendor.asked) == ({}, [])


async def test_a_half_open_breaker_lets_one_probe_it() -> None:
    bench = Bench(StartingVendor())
    await bench.desk.break_provider("first")
    bench.desk.clock.now += 60.0
    await bench.begin(claims(3), setting_out=1)
    await bench.until(lambda: bench.in_flight.claims == 1, "two that wait for the probe")
    (token,) = bench.vendor.under_way
    bench.answer(token, Sent())
    settled = await bench.end()
    assert sorted(type(one.verdict).__name__ for one in settled.values()) == ["Defer", "Defer", "Finish"]
    assert await bench.desk.breakers.look(["first"]) == {"first": State.CLOSED}


@pytest.mark.parametrize(("between", "state"), [(Sent(), State.CLOSED), (Unavailable("down"), State.OPEN)])
async def test_a_breaker_hears_of_answers_in_the_order_in_which_they_came(between: Outcome, state: State) -> None:
    # Two failures in a row open it; a success between them does not let them be in a row.
    bench = Bench(StartingVendor())
    await bench.begin(claims(4))
    for token, outcome in enumerate((Sent(), Unavailable("down"), between, Unavailable("down")), 1):
        bench.answer(token, outcome)
    await bench.end()
    assert await bench.desk.breakers.look(["first"]) == {"first": state}


async def test_calls_cut_off_by_shutdown_may_have_gone_out() -> None:
    bench = Bench(StartingVendor())
    await bench.begin(claims(3))
    bench.answer(1, Sent())
    await bench.in_flight.drain(0.0)
    settled = await bench.end()
    assert bench.vendor.given_up == [2, 3]
    notes = [settled[token].note for token in (1, 2, 3)]
    assert [note and (note.outcome, note.classification) for note in notes] == [
        ("sent", None),
        ("unknown", "shutdown"),
        ("unknown", "shutdown"),
    ]


async def test_where_a_repeat_would_be_recognised_they_are_given_back() -> None:
    vendor = StartingVendor()
    bench = Bench(vendor, Desk(vendor, give_back=True))
    await bench.begin(claims(3))
    bench.answer(1, Sent())
    await bench.in_flight.drain(0.0)
    settled = await bench.end()
    assert [type(settled[token].verdict) for token in (1, 2, 3)] == [Finish, Defer, Defer]
    assert [settled[token].note for token in (2, 3)] == [None, None]
    bench.answer(2, Sent())
    assert await bench.end() == settled, "an answer after that is nobody's"


@pytest.mark.req("P-1204")
async def test_what_was_sent_before_the_shutdown_is_not_given_back() -> None:
    """The store of the breakers has not answered yet when the time is over."""
    vendor = StartingVendor()
    bench = Bench(vendor, Desk(vendor, give_back=True))
    asked = asyncio.Event()

    async def silent(_provider: str, *, ok: bool) -> None:
        assert ok
        asked.set()
        await asyncio.Event().wait()

    await bench.begin(claims(2))
    bench.desk.breakers.record = silent  # type: ignore[method-assign, assignment]
    bench.answer(1, Sent())
    await asked.wait()
    bench.answer(2, Sent())
    # The answer is reported in the next turn of the loop, and nothing has begun to write it down.
    await asyncio.sleep(0)
    await bench.in_flight.drain(0.0)
    assert [type(one.verdict) for one in (await bench.end()).values()] == [Finish, Finish]


@pytest.mark.req("P-1206")
async def test_what_another_worker_may_have_sent_is_decided_before_the_shutdown_gives_it_back() -> None:
    """The breakers have not said yet whether its neighbours may be called."""
    vendor = StartingVendor()
    bench = Bench(vendor, Desk(vendor, policy=msgspec.structs.replace(POLICY, on_unknown="bury"), give_back=True))
    asked = asyncio.Event()

    async def silent(_provider: str) -> Admission:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets that event")

    bench.desk.breakers.admit = silent  # type: ignore[method-assign, assignment]
    fresh, abandoned = claims(2)
    await bench.begin([fresh, msgspec.structs.replace(abandoned, abandoned=True)], setting_out=0)
    await asked.wait()
    await bench.in_flight.drain(0.0)
    settled = await bench.end()
    assert settled[fresh.token].verdict == Defer(0.0)
    assert settled[abandoned.token].verdict == Bury("abandoned", "a worker died holding this route")


async def test_the_drain_waits_for_calls_and_for_what_they_leave_to_be_written() -> None:
    bench = Bench(StartingVendor())
    await bench.begin(claims(2))
    draining = asyncio.create_task(bench.in_flight.drain(PATIENCE))
    bench.answer(1, Sent())
    bench.answer(2, Sent())
    await asyncio.wait_for(draining, PATIENCE)
    assert set(bench.ledger.by_token) == {1, 2}
    assert bench.vendor.given_up == []


async def test_a_provider_that_forgets_its_deadline_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "EXTRA_SECONDS", 0.0)
    vendor = StartingVendor()
    bench = Bench(vendor, Desk(vendor, policy=msgspec.structs.replace(POLICY, timeout_seconds=0.01)))
    await bench.begin(claims(2))
    settled = await bench.end()
    notes = [settled[token].note for token in (1, 2)]
    assert [note and (note.outcome, note.classification) for note in notes] == [("unknown", "timeout")] * 2
    assert vendor.given_up == [1, 2]


async def test_a_bug_of_ours_leaves_the_claims_to_their_leases_and_is_told() -> None:
    bench = Bench(StartingVendor())

    async def torn(_provider: str) -> None:
        raise IndexError("a bug of ours")

    bench.desk.breakers.admit = torn  # type: ignore[method-assign, assignment]
    await bench.begin(claims(2), setting_out=0)
    assert await bench.end() == {}
    assert [event.error for event in bench.said if isinstance(event, Trouble)] == ["IndexError: a bug of ours"]
