"""A server killed right after its commit: the producer repeats, and gets the same notification again."""

import asyncio
from collections.abc import Callable

import pytest

from tests.chaos import properties
from tests.chaos.conftest import MakeStand
from tests.support import tables
from tests.support.stand import Stand

MESSAGES, KILLS = 200, 5
RECORDS = "SELECT notification_id, idempotency_key FROM records"


async def kill_after_commit(stand: Stand, number: int, kills: int) -> dict[str, str]:
    """Returns what was committed and never answered: key to id."""
    producing = asyncio.create_task(stand.send(stand.pushes(f"m{place}" for place in range(number))))
    unanswered: dict[str, str] = {}
    for _ in range(kills):
        doors = await stand.start("doors", faults=f"after_accept_commit=exit9@{number // (2 * kills)}")
        assert await asyncio.to_thread(doors.wait, 60) == -9
        # An answer sent just before the death may still be on its way to the caller.
        await stand.producer.until_answered()
        answered = {line["key"] for line in stand.producer.lines if line["status"] == 202}
        stored = {row["idempotency_key"]: row["notification_id"] for row in await tables.read(stand.url, RECORDS)}
        unanswered |= {key: name for key, name in stored.items() if key not in answered}
    await stand.start()
    await producing
    await stand.until_terminal(number)
    return unanswered


def repeats_replayed(stand: Stand, unanswered: dict[str, str]) -> None:
    """A repeat gets the first id, and is marked as replayed."""
    last = {line["key"]: line for line in stand.producer.lines}
    wrong = [
        last[key]
        for key, name in unanswered.items()
        if (last[key]["status"], last[key]["notification_id"], last[key]["replayed"]) != (202, name, True)
    ]
    properties.hold("repeats_replayed", bool(unanswered) and not wrong, wrong or "no commit went unanswered")


@pytest.mark.req("G-05")
async def test_a_server_killed_after_commit_answers_the_repeat_with_the_same_id(
    make_stand: MakeStand, figures: Callable[..., None]
) -> None:
    async with make_stand(concurrency=100) as stand:
        unanswered = await kill_after_commit(stand, MESSAGES, KILLS)
        repeats_replayed(stand, unanswered)
        report = await properties.everything_holds(stand)
        assert (report.accepted, report.routes, report.duplicates) == (MESSAGES, MESSAGES, {})
        figures(messages=MESSAGES, kills=KILLS, committed_unanswered=len(unanswered), rows=report.routes, repeats=0)
