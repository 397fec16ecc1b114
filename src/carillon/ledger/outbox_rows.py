"""How rows of the outbox become alerts, the same for every engine."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from carillon.domain.alerts import Alert, Happened, Telling, bare_error, provider_attempts

Row = Mapping[str, Any]

_ROUNDING_MS = 1


def known(rows: Iterable[Row]) -> list[Row]:
    """Those whose notification is still there to be spoken of."""
    return [row for row in rows if row["channel"] is not None and row["notification_type"] is not None]


def tellings(rows: Sequence[Row], history: Iterable[Row]) -> list[Telling]:
    """Alerts as they are told; times are Unix milliseconds."""
    of_route: dict[tuple[str, str], list[Row]] = {}
    for row in history:
        of_route.setdefault((row["notification_id"], row["route_id"]), []).append(row)
    return [_telling(row, of_route.get((row["notification_id"], row["route_id"]), [])) for row in rows]


def _telling(row: Row, history: Iterable[Row]) -> Telling:
    # What a redrive did since then is another story.
    happened = [
        Happened(provider=each["provider"], at_ms=each["at"], message_id=each["message_id"], error=each["error"])
        for each in history
        if each["at"] <= row["created_at"] + _ROUNDING_MS
    ]
    alert = Alert(
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
    return Telling(alert=alert, tries=row["tries"], told=split(row["told"]))


def joined(told: Iterable[str]) -> str:
    """As the column `told` holds them."""
    return ",".join(sorted(set(told)))


def split(told: str) -> tuple[str, ...]:
    """What the column `told` holds."""
    return tuple(name for name in told.split(",") if name)


def _moment(unix_ms: float) -> str:
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
