"""If the vendor recognises repeats, calls that the shutdown cancels go back to the backlog, uncounted."""

import asyncio

import pytest

from carillon.domain.claims import Settlement
from carillon.domain.outcomes import Sent
from tests.unit.test_outbound_attempt import Desk, HangingVendor


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
