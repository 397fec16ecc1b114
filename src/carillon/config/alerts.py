"""The settings of alerts: who is told when a notification is given up."""

from typing import Literal

import msgspec


class Alerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who is told when a notification is given up."""

    sinks: list[Literal["auto", "redis", "log", "webhook", "rabbitmq"]] = []
    """Everybody named is told; `auto` is Redis where it is configured, the log elsewhere."""
    name: str = "listo-notifications-alerts"
    """The stream in Redis, the queue in RabbitMQ."""
    synchronous: bool = False
    """True tells of synchronous deliveries as well, whose callers know already."""
    webhook_url: str | None = None
    webhook_secrets: list[str] = []
    """Newest first; every one of them signs."""
    rabbitmq_url: str | None = None
    poll_seconds: float = 1.0
