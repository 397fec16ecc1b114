"""Many routes in one call: each is gated, noted and decided on its own, whatever the provider does."""

from collections.abc import Sequence

import msgspec
import pytest

from carillon.domain.breaker import Admission
from carillon.domain.claims import Claim, Dispatch, Settlement
from carillon.domain.outcomes import Outcome, Refused, Sent, Unavailable
from carillon.domain.verdicts import Bury, Defer, Finish, Retry
from tests.unit.test_outbound_attempt import CLAIM, SUPPRESSION, Desk, Vendor, broken
from tests.unit.test_outbound_leases import Unused


class BatchVendor(Vendor):
    """Takes many at once; `size` other than None makes it miscount its answers."""

    size: int | None = None

    def __init__(self) -> None:
        super().__init__(Sent)
        self.batches: list[int] = []

    async def send_many(self, dispatches: Sequence[Dispatch]) -> list[Outcome]:
        self.asked.extend(dispatches)
        self.batches.append(len(dispatches))
        return [self.answer() for _ in range(len(dispatches) if self.size is None else self.size)]


def claims(count: int) -> list[Claim]:
    return [msgspec.structs.replace(CLAIM, token=token, route_id=f"email:{token}") for token in range(1, count + 1)]


async def attempt_many(desk: Desk, batch: list[Claim]) -> list[Settlement]:
    desk.leases.take(batch, desk.clock.monotonic())
    settlements = await desk.attempts.attempt_many(batch)
    assert [settlement.claim for settlement in settlements] == batch, "one each, in order"
    return settlements


def words(settlements: list[Settlement]) -> list[str]:
    return ["none" if one.note is None else f"{one.note.outcome}:{one.note.classification}" for one in settlements]


def test_only_a_provider_that_can_is_given_batches() -> None:
    assert Desk(BatchVendor()).attempts.sends_batches(CLAIM)
    assert not Desk(Vendor(Sent)).attempts.sends_batches(CLAIM)


def test_what_is_still_to_be_prepared_goes_alone() -> None:
    desk = Desk(BatchVendor())
    # Only the way alone asks for a message to be made.
    desk.attempts._preparer = Unused()  # type: ignore[assignment]  # noqa: SLF001 - nothing else is changed
    assert not desk.attempts.sends_batches(CLAIM)
    assert not desk.attempts.calls_concurrently(CLAIM)


async def test_a_batch_is_one_call_with_one_outcome_each() -> None:
    vendor = BatchVendor()
    answers: list[Outcome] = [Sent(), Refused("bad"), Unavailable("later")]
    vendor.answer = lambda: answers.pop(0)
    settlements = await attempt_many(Desk(vendor), claims(3))
    assert vendor.batches == [3]
    assert [type(one.verdict) for one in settlements] == [Finish, Bury, Retry]


async def test_gates_hold_single_routes_back_and_let_the_others_go() -> None:
    vendor = BatchVendor()
    desk = Desk(vendor)
    batch = claims(4)
    batch[1] = msgspec.structs.replace(batch[1], suppression_json=SUPPRESSION)
    desk.leases.take(batch, desk.clock.monotonic())
    desk.leases.drop([batch[2]])
    settlements = await desk.attempts.attempt_many(batch)
    assert [type(one.verdict) for one in settlements] == [Finish, Bury, Defer, Finish]
    assert vendor.batches == [2]


@pytest.mark.parametrize("size", [0, 1, 4])
async def test_a_provider_that_miscounts_leaves_every_outcome_unknown(size: int) -> None:
    vendor = BatchVendor()
    vendor.size = size
    settlements = await attempt_many(Desk(vendor), claims(3))
    assert words(settlements) == ["unknown:provider_error"] * 3
    assert {type(one.verdict) for one in settlements} == {Retry}


async def test_a_provider_that_raises_leaves_every_outcome_unknown() -> None:
    vendor = BatchVendor()
    vendor.answer = broken
    assert words(await attempt_many(Desk(vendor), claims(3))) == ["unknown:provider_error"] * 3


async def test_an_open_breaker_gives_the_whole_batch_back_unspent() -> None:
    vendor = BatchVendor()
    desk = Desk(vendor)
    await desk.break_provider("first")
    settlements = await attempt_many(desk, claims(3))
    assert [(type(one.verdict), one.note) for one in settlements] == [(Defer, None)] * 3
    assert vendor.asked == []


async def test_a_half_open_breaker_tries_one_route_and_not_the_batch() -> None:
    vendor = BatchVendor()
    vendor.answer = lambda: Unavailable("still down")
    desk = Desk(vendor)
    await desk.break_provider("first")
    desk.clock.now += 61.0
    settlements = await attempt_many(desk, claims(5))
    assert words(settlements) == ["unavailable:unavailable", "none", "none", "none", "none"]
    assert len(vendor.asked) == 1
    assert await desk.breakers.admit("first") is Admission.STOP


async def test_after_a_good_probe_the_rest_goes_too() -> None:
    vendor = BatchVendor()
    desk = Desk(vendor)
    await desk.break_provider("first")
    desk.clock.now += 61.0
    settlements = await attempt_many(desk, claims(5))
    assert {type(one.verdict) for one in settlements} == {Finish}
    assert len(vendor.asked) == 5
