"""Alerts in the outbox: written with their dead letter, leased by a sender, removed once sent."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from carillon.domain.alerts import Alert, DueAlert, PostponedAlert, ProviderEvent, bare_error, provider_attempts
from carillon.domain.store import Engine, Row

_ROUNDING_MS = 1


class OutboxStore:
    """Satisfies Outbox."""

    engine: Engine

    async def due_alerts(self, limit: int, lease_seconds: float) -> list[DueAlert]:
        # Not repeated after a broken connection: alerts leased without an answer come back when the lease ends.
        taken = await self.engine.write(
            "due_alerts", {"limit": limit, "lease_seconds": lease_seconds}, repeatable=False, look="alerts_are_due"
        )
        if not taken:
            return []
        tries = {row["outbox_id"]: row["tries"] for row in taken}
        rows = await self.engine.rows("taken_alerts", {"alert_ids": list(tries)})
        known = [row for row in rows if row["channel"] is not None and row["notification_type"] is not None]
        if len(known) < len(rows):
            # Their notification was pruned: there is nothing left to send.
            await self.told([row["outbox_id"] for row in rows if row not in known])
        ids = sorted({row["notification_id"] for row in known})
        history = await self.engine.rows("alert_history", {"notification_ids": ids})
        return _due_alerts(known, tries, history)

    async def told(self, alert_ids: Sequence[int]) -> None:
        await self.engine.write("told_alerts", {"alert_ids": sorted(alert_ids)}, repeatable=True)

    async def postpone(self, postponed: Sequence[PostponedAlert]) -> None:
        rows = [
            {"alert_id": one.alert_id, "tries": one.tries, "told": _joined(one.told), "seconds": one.seconds}
            for one in sorted(postponed, key=lambda each: each.alert_id)
        ]
        await self.engine.write("postpone_alerts", each=rows, repeatable=True)


def _due_alerts(rows: Sequence[Row], tries: dict[int, int], history: Iterable[Row]) -> list[DueAlert]:
    """Alerts with their number of tries; times are Unix milliseconds."""
    of_route: dict[tuple[str, str], list[Row]] = {}
    for row in history:
        of_route.setdefault((row["notification_id"], row["route_id"]), []).append(row)
    return [
        DueAlert(
            alert=_alert(row, of_route.get((row["notification_id"], row["route_id"]), [])),
            tries=tries[row["outbox_id"]],
            told=_split(row["told"]),
        )
        for row in rows
    ]


def _alert(row: Row, history: Iterable[Row]) -> Alert:
    # Attempts after a later redrive do not belong to this alert.
    happened = [
        ProviderEvent(provider=each["provider"], at_ms=each["at"], message_id=each["message_id"], error=each["error"])
        for each in history
        if each["at"] <= row["created_at"] + _ROUNDING_MS
    ]
    return Alert(
        alert_id=row["outbox_id"],
        notification_id=row["notification_id"],
        tenant_id=row["tenant_id"],
        user_id=row["user_id"],
        channel=row["channel"],
        template_key=row["notification_type"],
        attempt_count=row["attempt_count"],
        last_error=bare_error(row["last_error"]),
        failed_at=_moment(row["created_at"]),
        provider_attempts=provider_attempts(happened),
    )


def _joined(told: Iterable[str]) -> str:
    """The names of sinks in the form of the column `told`."""
    return ",".join(sorted(set(told)))


def _split(told: str) -> tuple[str, ...]:
    """The names of sinks in the column `told`."""
    return tuple(name for name in told.split(",") if name)


def _moment(unix_ms: float) -> str:
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
