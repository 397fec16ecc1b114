"""How a route that has ended becomes a line of history, the same for every engine."""

from collections.abc import Callable
from typing import Any

from carillon.domain.history import Ending

_AS_THEY_ARE = (
    "notification_id",
    "route_id",
    "notification_type",
    "producer",
    "tenant_id",
    "user_id",
    "channel",
    "provider",
    "lane",
    "status",
    "attempts",
    "error",
)
_TIMES = ("changed", "accepted", "wanted", "ended", "delivered")


def ending(row: Any, unix_us: Callable[[Any], int]) -> Ending:  # noqa: ANN401 - each driver has a row of its own
    """`unix_us` reads this engine's times."""
    fields: dict[str, Any] = {name: row[name] for name in _AS_THEY_ARE}
    times: dict[str, Any] = {f"{name}_us": None if row[name] is None else unix_us(row[name]) for name in _TIMES}
    return Ending(**fields, **times)
