"""A worker that is suspended for longer than its lease changes no route that another one holds by then."""

import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos import properties
from tests.chaos.conftest import MakeStand
from tests.support import tables
from tests.support.process import Program
from tests.support.stand import Rules, Stand
from tests.support.vendor import Reply
from tests.support.waiting import until

Route = dict[str, Any]
PATIENT = Rules(lease=12.0, timeout=9.6)
"""No call and no lease ends because a busy machine stood still: where a lease is to end, the test ends it."""


def is_stopped(program: Program) -> bool:
    return Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def the_route(stand: Stand) -> Route:
    (route,) = await tables.read(stand.url, tables.ROUTES)
    return route


async def held_by(stand: Stand, program: Program) -> Route:
    """The one route, once this process holds it."""

    def is_his(rows: list[Route]) -> bool:
        return str(rows[0]["lease_owner"]).endswith(f"/{program.pid}")

    await stand.until_rows(tables.ROUTES, is_his)
    return await the_route(stand)


async def stale_failure(stand: Stand, mutant: str | None = None) -> None:
    """A is stopped in mid-call, B takes over; A's failure comes back while B is still calling."""
    gates = [threading.Event(), threading.Event()]
    stand.vendor.answer(Reply(status=503, gate=gates[0]), Reply(gate=gates[1]))
    zombie = await stand.start(mutant=mutant)
    await stand.send(stand.webhooks(["m"]))
    await stand.vendor.until(1)
    zombie.stop()
    await stand.end_leases()
    heir = await stand.start("outbound")
    await stand.vendor.until(2)
    before = await held_by(stand, heir)
    gates[0].set()
    zombie.cont()
    await zombie.until("route_attempted")
    properties.zombie_changed_nothing(before, await the_route(stand))
    gates[1].set()
    await stand.until_terminal(1)
    await properties.everything_holds(stand)


async def late_success(stand: Stand, mutant: str | None = None) -> None:
    """A is stopped with a success in its hands, B is calling; the success counts, and B's failure does not."""
    accepted, gate = threading.Event(), threading.Event()
    # A calls as soon as it has accepted: without the first gate it may stop before its answer to the producer leaves.
    stand.vendor.answer(Reply(gate=accepted), Reply(status=503, gate=gate))
    zombie = await stand.start(mutant=mutant, faults="before_settle=stop")
    await stand.send(stand.webhooks(["m"]))
    accepted.set()
    await until(lambda: _true(is_stopped(zombie)), timeout=40, what="the worker stopped before settling")
    await stand.end_leases()
    heir = await stand.start("outbound")
    await stand.vendor.until(2)
    await held_by(stand, heir)
    zombie.cont()
    await zombie.until("route_attempted")
    gate.set()
    await heir.until("route_attempted")
    await stand.until_terminal(1)
    properties.late_success_closed(await the_route(stand), len(stand.vendor.entries))
    await properties.everything_holds(stand)


async def stale_renewal(stand: Stand, mutant: str | None = None) -> None:
    """A is stopped just before it renews; B, who has the route by then, is stopped as well so that it cannot renew."""
    stand.vendor.answer(Reply(hang=True), Reply(hang=True))
    zombie = await stand.start(mutant=mutant, faults="before_extend=stop")
    await stand.send(stand.webhooks(["m"]))
    await until(lambda: _true(is_stopped(zombie)), timeout=40, what="the worker stopped before renewing")
    await stand.end_leases()
    heir = await stand.start("outbound")
    await stand.vendor.until(2)
    heir.stop()
    before = await held_by(stand, heir)
    zombie.cont()

    async def spoke() -> bool:
        heard = bool(zombie.events("lease_lost") or zombie.events("route_attempted"))
        return heard or (await the_route(stand))["next_attempt_at"] != before["next_attempt_at"]

    await until(spoke, timeout=40, what="the zombie's renewal")
    properties.lease_untouched(before, await the_route(stand))
    heir.kill()
    await stand.end_leases()
    await stand.until_terminal(1)
    await properties.everything_holds(stand)


async def renewal(stand: Stand, mutant: str | None = None) -> None:
    """The vendor thinks for longer than a third of the lease: the lease moves on meanwhile."""
    gate = threading.Event()
    stand.vendor.answer(Reply(gate=gate))
    worker = await stand.start(mutant=mutant)
    await stand.send(stand.webhooks(["m"]))
    await stand.vendor.until(1)
    first = await held_by(stand, worker)
    seen: list[Route] = [first]

    async def moved_or_given_up() -> bool:
        seen.append(await the_route(stand))
        return seen[-1]["next_attempt_at"] != first["next_attempt_at"] or bool(worker.events("route_attempted"))

    await until(moved_or_given_up, timeout=40, what="a renewed lease")
    gate.set()
    properties.lease_renewed(first, seen[-1])
    await stand.until_terminal(1)


async def _true(value: bool) -> bool:  # noqa: FBT001 - lifts a plain condition into one to be awaited
    return value


async def test_renewal_outlives_an_exception(make_stand: MakeStand) -> None:
    async with make_stand(**asdict(PATIENT)) as stand:
        stand.vendor.answer(Reply(delay=5.0))
        worker = await stand.start(faults="before_extend=raise")
        await stand.send(stand.webhooks(["first"]))
        await worker.until("route_attempted")
        gate = threading.Event()
        stand.vendor.answer(Reply(gate=gate))
        await stand.send(stand.webhooks(["second"]))
        await stand.vendor.until(2)
        before = await lease_of(stand, "second")

        async def moved() -> bool:
            return bool((await lease_of(stand, "second"))["next_attempt_at"] != before["next_attempt_at"])

        await until(moved, timeout=40, what="a renewal after the exception")
        properties.lease_renewed(before, await lease_of(stand, "second"))
        gate.set()
        await stand.until_terminal(2)


async def lease_of(stand: Stand, user: str) -> Route:
    return next(row for row in await tables.read(stand.url, tables.ROUTES) if row["recipient_ref"] == f"user:{user}")


async def test_a_zombies_failure_changes_nothing(make_stand: MakeStand, figures: Callable[..., None]) -> None:
    async with make_stand(**asdict(PATIENT)) as stand:
        await stale_failure(stand)
        attempts = await tables.read(stand.url, tables.ATTEMPTS)
        assert [row["settled"] for row in attempts] == ["stale", "applied"]
        figures(calls=len(stand.vendor.entries), stale=1, duplicates=0)


async def test_a_zombies_late_success_is_adopted(make_stand: MakeStand) -> None:
    async with make_stand(**asdict(PATIENT)) as stand:
        await late_success(stand)
        attempts = await tables.read(stand.url, tables.ATTEMPTS)
        assert sorted(row["settled"] for row in attempts) == ["adopted", "stale"]


async def test_a_zombies_renewal_leaves_the_new_lease_alone(make_stand: MakeStand) -> None:
    async with make_stand(**asdict(PATIENT)) as stand:
        await stale_renewal(stand)


async def test_a_lease_is_renewed_while_its_call_lasts(make_stand: MakeStand) -> None:
    async with make_stand(**asdict(PATIENT)) as stand:
        await renewal(stand)
