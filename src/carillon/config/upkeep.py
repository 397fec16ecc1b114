"""The sections of looking after: alerts, history, retention, logs, metrics, traces."""

from typing import ClassVar, Literal

from carillon.config.section import Bounds, Section
from carillon.upkeep.metrics.instruments import Instrument


class Alerts(Section, frozen=True):
    """Who is told when a notification is given up."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "poll_seconds": (0.001, 3600),
    }

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


class HistorySettings(Section, frozen=True):
    """Where what has ended is kept for looking back; nowhere without a URL."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "keep_days": (1, 36_500),
        "batch": (1, 100_000),
        "poll_seconds": (0.001, 3600),
        "lag_seconds": (0, 3600),
        "timeout_seconds": (0.001, 600),
    }

    url: str | None = None
    """`http://…` or `https://…` of ClickHouse's HTTP interface with the database as its path, or `chdb:///folder`."""
    keep_days: int = 30
    batch: int = 5000
    poll_seconds: float = 5.0
    lag_seconds: float = 1.0
    """What changed so recently waits for the next look: small corrections of the database's clock lose nothing."""
    timeout_seconds: float = 15.0


class RetentionSettings(Section, frozen=True):
    """How long finished notifications and malformed intents are kept."""

    record_seconds: float = 30 * 86400.0
    malformed_seconds: float = 90 * 86400.0
    interval_seconds: float = 3600.0
    batch: int = 500


class MetricSettings(Section, frozen=True):
    """Where metrics go beside the OTEL_* variables, and under which names."""

    stdout: bool = False
    instruments: dict[str, Instrument] = {}
    only: bool = False
    """True exports the instruments named here and no others."""


class TraceSettings(Section, frozen=True):
    """Where spans go beside the OTEL_* variables."""

    stdout: bool = False


class Log(Section, frozen=True):
    """What is written to stdout."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "pretty"] = "auto"
    sentences: dict[str, str] = {}
    """By an attempt's verdict or an event's word, what its lines say instead of ours; fields stand in braces."""
    name_people: bool = False
    """True names the person in the lines about attempts."""
