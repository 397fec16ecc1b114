"""Rows of chains, the same for every engine: how they are laid, and what one route means for those behind it."""

from collections.abc import Collection, Mapping, Sequence

from carillon.domain.chains import moved_up
from carillon.domain.claims import Settled, Settlement
from carillon.domain.notifications import Enrolment, Status, planned_ms, route_due_ms
from carillon.domain.ports import Signal
from carillon.domain.receipts import OverdueReceipt
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.verdicts import Bury, Finish, Skip


def laid(batch: Sequence[Enrolment], written: Collection[str]) -> Steps[None]:
    """Note chains and quiet hours of the new notifications.

    In a chain, what a suppression has skipped leaves its time to the next channel.
    """
    told = [each for each in batch if each.notification.notification_id in written]
    new = [each for each in told if has_chain(each) or is_held(each)]
    if not new:
        return
    ids = [each.notification.notification_id for each in new]
    rows = yield Ask("chain_open", {"notification_ids": ids})
    waiting = {(row["notification_id"], row["route_id"]) for row in rows}
    lines: list[Row] = []
    for each in new:
        name = each.notification.notification_id
        gone = {route.route_id for route in each.routes if (name, route.route_id) not in waiting}
        placed = {route.route_id: route for route in moved_up(each.routes, gone)}
        for planned in each.routes:
            route = placed.get(planned.route_id, planned)
            moved = route.step is not None and route.step != planned.step
            held = None if route.route_id in gone else route.not_before_ms
            lines.append(
                {"notification_id": name, "route_id": route.route_id, "goal": route.goal, "step": route.step}
                | {"due_ms": route_due_ms(each, route), "planned_ms": planned_ms(each, route)}
                | {"not_before_ms": held, "moved": moved}
            )
    yield Ask("chain_lay", each=sorted(lines, key=lambda line: (line["notification_id"], line["route_id"])))


def has_chain(each: Enrolment) -> bool:
    """Whether storing it lays a chain: all its routes have the goal, or none."""
    return bool(each.routes) and each.routes[0].goal is not None


def is_held(each: Enrolment) -> bool:
    """Whether quiet hours hold a route of it, which its story names."""
    return any(route.not_before_ms is not None and route.status is Status.PENDING for route in each.routes)


def changed(notification_ids: Collection[str]) -> Steps[list[Row]]:
    """Skip what waits for a goal that is reached, and let go what waited for a dead letter; returns what is skipped."""
    if not notification_ids:
        return []
    asked = {"notification_ids": sorted(set(notification_ids))}
    reached = yield Ask("chain_reached", asked)
    yield Ask("chain_release", asked)
    return reached


def changes_more(settlements: Sequence[Settlement], deadlines: Mapping[str, float]) -> bool:
    """Whether settling changes rows beside the settled ones, or awaits a report."""
    return any(_ends_chain(one) or _awaits(one, deadlines) for one in settlements)


def settled_beside(
    settlements: Sequence[Settlement], settled: Sequence[Settled], deadlines: Mapping[str, float]
) -> Steps[bool]:
    """What settlements change beside their routes, in their transaction; whether a chain may have gone on."""
    applied = [one for one, came in zip(settlements, settled, strict=True) if came is not Settled.STALE]
    awaited = [
        {"notification_id": one.claim.notification_id, "route_id": one.claim.route_id}
        | {"provider": one.note.provider, "seconds": deadlines[one.note.provider]}
        for one in applied
        if one.note is not None and _awaits(one, deadlines)
    ]
    yield Ask("await_receipt", each=sorted(awaited, key=lambda row: (row["notification_id"], row["route_id"])))
    ended = {one.claim.notification_id for one in applied if _ends_chain(one)}
    yield from changed(ended)
    return bool(ended)


def _ends_chain(one: Settlement) -> bool:
    return one.claim.goal is not None and isinstance(one.verdict, Bury | Skip)


def _awaits(one: Settlement, deadlines: Mapping[str, float]) -> bool:
    return (
        bool(deadlines) and isinstance(one.verdict, Finish) and one.note is not None and one.note.provider in deadlines
    )


class OverdueStore:
    """The part of ReceiptLedger about reports that do not come."""

    engine: Engine
    signal: Signal

    async def overdue_receipts(self, limit: int) -> list[OverdueReceipt]:
        rows = await self.engine.rows("receipts_overdue", {"limit": limit})
        return [
            OverdueReceipt(
                row["notification_id"],
                row["route_id"],
                row["channel"],
                row["provider"],
                row["provider_message_id"],
                bool(row["sent"]),
            )
            for row in rows
        ]

    async def give_up_receipts(self, overdue: Sequence[OverdueReceipt]) -> None:
        rows = [{"notification_id": one.notification_id, "route_id": one.route_id} for one in overdue]
        await self.engine.write("receipts_given_up", each=rows, repeatable=True)
