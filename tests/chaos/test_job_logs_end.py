"""SIGTERM while a job log is being written: it is waited for, within the time that the end has."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.properties import ViolationError, ends_in_time, hold
from tests.support import tables
from tests.support.billing_stand import Billing
from tests.support.ending import LEAST, LOOK, STEPS, Ending
from tests.support.servers import Postgres, Redis
from tests.support.waiting import until

# Long enough that a process that does not wait would have ended; and a drain time that suits every machine.
HELD, DRAIN = 0.5, 60.0
NO_MESSAGE = "This is no message."


@pytest.fixture
def billing(tmp_path: Path, postgres: Postgres, redis_server: Redis) -> Iterator[Billing]:
    dsn = postgres.database()
    with Billing(tmp_path, redis_server=redis_server, url=dsn) as stand:
        yield stand
    postgres.drop(dsn)


async def end_of_whoever_writes(
    billing: Billing, held: float, *, drain: float = DRAIN, mutant: str | None = None
) -> Ending:
    """Told to stop while PostgreSQL has a row and does not take it, and for so long after that it was heard."""
    program = await asyncio.to_thread(billing.start, mutant=mutant, CARILLON_WORK__DRAIN_SECONDS=f"{drain}")

    async def unready() -> bool:
        try:
            return (await asyncio.to_thread(billing.client(program).get, "/readyz")).status == 503
        except OSError:
            return True

    async with tables.locked(billing.url, "job_logs"):
        billing.push("q:sub:usage_sync", NO_MESSAGE)
        await somebody_waits(billing)
        ending = asyncio.create_task(asyncio.to_thread(ends_in_time, program, drain + STEPS + LOOK))
        await until(unready, timeout=60, what="the end")
        await asyncio.wait([ending], timeout=held)
    return await ending


async def somebody_waits(billing: Billing) -> None:
    async def waits() -> bool:
        return await tables.number(billing.url, tables.WAITING) > 0

    await until(waits, timeout=60, what="a row on its way")


async def told(billing: Billing) -> None:
    rows = await tables.read(billing.url, "SELECT status, last_error FROM job_logs")
    hold("told", rows == [{"status": "failed", "last_error": "invalid_message"}], rows)


async def test_a_row_on_its_way_arrives(billing: Billing) -> None:
    await end_of_whoever_writes(billing, HELD)
    await told(billing)


async def test_a_process_that_does_not_wait_for_it_is_missed(billing: Billing) -> None:
    await end_of_whoever_writes(billing, DRAIN, mutant="nothing_told_last")
    with pytest.raises(ViolationError) as caught:
        await told(billing)
    assert caught.value.promise == "told"


async def test_one_that_never_arrives_keeps_nobody(billing: Billing) -> None:
    await end_of_whoever_writes(billing, DRAIN, drain=LEAST)
