"""The sections of the settings around the engine: doors, upkeep, and those of single blueprints."""

from typing import ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from carillon.upkeep.metrics.instruments import Instrument

Bounds = tuple[float, float]


AUTO = frozenset({"", "auto", "auto-generate-uuid"})
"""Values of `task_picker.instance_id` that make each process choose a UUID."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the settings; the program does not start with a name that the section does not know."""

    bounds: ClassVar[dict[str, Bounds]] = {}
    """The least and the greatest value of each field; reading the settings checks them."""


class Http(Section, frozen=True):
    """Where and how the HTTP listener serves."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "max_body_bytes": (1024, 64 * 1024 * 1024),
        "max_requests_in_flight": (1, 1_000_000),
        "max_connections": (16, 1_000_000),
        "max_idle_connections_per_address": (0, 1_000_000),
        "max_slow_bodies_per_address": (0, 1_000_000),
        "port": (0, 65_535),
        "header_timeout_seconds": (0.001, 86_400),
        "read_timeout_seconds": (0.001, 86_400),
        "idle_timeout_seconds": (0.001, 86_400),
    }

    host: str = "127.0.0.1"
    port: int = 8080
    max_body_bytes: int = 256 * 1024
    max_requests_in_flight: int = 1024
    max_connections: int = 4096
    """Connections at once; streams come on top."""
    max_idle_connections_per_address: int = 1024
    """Connections of one address without a request under way; 0 is no limit, here and in the next."""
    max_slow_bodies_per_address: int = 64
    """Bodies of one address that take longer than a second."""
    trusted_proxies: list[str] = []
    """Addresses and networks of your own proxies: limits per address then count the address in X-Forwarded-For."""
    header_timeout_seconds: float = 10.0
    read_timeout_seconds: float = 10.0
    idle_timeout_seconds: float = 60.0
    surface: Literal["full", "health", "probes"] = "full"
    """`probes` serves the two probes and nothing else, `health` the health checks beside them."""
    allowed_hosts: list[str] = []
    """Host names served beside loopback; empty serves every name if callers must authenticate."""
    docs: bool = True
    console: bool = True
    requests_per_second: float = 0.0
    """Per token, or per address without authentication; 0 is no limit, here and in the next four."""
    requests_burst: float = 200.0
    key_requests_per_second: float = 100.0
    anonymous_requests_per_second: float = 20.0
    """Per address, for callers without credentials where authentication is required."""
    auth_failures_per_minute: float = 10.0


class Auth(Section, frozen=True):
    """Bearer tokens and API keys; without them the process serves loopback only."""

    secret: str | None = None
    algorithm: Literal["HS256", "RS256", "ES256", "EdDSA"] = "HS256"
    public_key_file: str | None = None
    jwks_file: str | None = None
    issuer: str | None = None
    audience: str | None = None
    typ: str = "JWT"
    leeway_seconds: float = 30.0
    max_lifetime_seconds: float = 3600.0
    admin_max_lifetime_seconds: float | None = None
    revoked_file: str | None = None
    """A file of revoked tokens, one `jti` a line, read again every few seconds."""
    required: bool = False
    """True requires an API key although no tokens are configured."""
    people_reach_tenant: bool = False
    """True: people and services see, cancel and send everything of their tenant, not only what is their own."""

    def asked(self) -> bool:
        """Whether callers must authenticate."""
        return self.required or any((self.secret, self.public_key_file, self.jwks_file))


class Stream(Section, frozen=True):
    """The Redis Stream that intents are read from."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "block_seconds": (0.001, 3600),
        "batch": (1, 10_000),
    }

    name: str
    block_seconds: float = 2.0
    batch: int = 500
    offset_prefix: str = "notification:stream_offsets"
    lease_prefix: str = "notification:stream_leases"


class RabbitmqDoor(Section, frozen=True):
    """The RabbitMQ queue from which send requests are read; none without a name."""

    bounds: ClassVar[dict[str, Bounds]] = {
        # AMQP carries it in 16 bits, and 0 would mean no bound at all.
        "prefetch": (1, 65_535),
    }

    url: str | None = None
    queue: str | None = None
    queue_type: Literal["classic", "quorum"] = "classic"
    """The type of a queue that does not exist yet; an existing queue stays as it is."""
    prefetch: int = 200
    """Unacknowledged deliveries at once."""


class ServicebusDoor(Section, frozen=True):
    """The queue of Azure Service Bus from which send requests are read; none without a name."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "prefetch": (1, 10_000),
    }

    connection_string: str = ""
    """As the portal shows it: `Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…`."""
    queue: str | None = None
    prefetch: int = 200
    """Messages that the door locks at once."""


def servicebus_address(connection_string: str) -> str | None:
    """Where a namespace listens, as a URL without its key; None for no connection string."""
    fields = dict(field.split("=", 1) for field in connection_string.split(";") if "=" in field)
    known = {name.strip().lower(): value.strip() for name, value in fields.items()}
    place = urlsplit(known.get("endpoint", "")).netloc
    # Only the emulator listens without TLS.
    scheme = "amqp" if known.get("usedevelopmentemulator") == "true" else "amqps"
    return f"{scheme}://{place}" if place else None


class Kafka(Section, frozen=True):
    """The Kafka topic from which messages are read; none without brokers."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "session_timeout_ms": (1000, 3_600_000),
        "batch": (1, 10_000),
    }

    bootstrap_servers: str | None = None
    """`host:port`, separated by commas."""
    topic: str = "notifications"
    group_id: str = "notification-service"
    session_timeout_ms: int = 45_000
    """After this time without a sign of life, a process loses its partitions to others of its group."""
    batch: int = 500
    """Messages of one partition in one transaction."""
    options: dict[str, str] = {}
    """Further properties of the client, such as `"security.protocol"` or `"sasl.password"`."""


class SseSettings(Section, frozen=True):
    """How people's streams are served."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "max_connections": (0, 1_000_000),
        "max_per_key": (1, 1_000_000),
        "buffer": (1, 100_000),
        "heartbeat_seconds": (0.05, 3600),
        "write_seconds": (0.05, 3600),
        "lifetime_seconds": (0.1, 365 * 86_400),
        "recheck_seconds": (0.05, 3600),
        "retry_ms": (0, 3_600_000),
        "ticket_seconds": (1, 3600),
        "presence_seconds": (0.5, 3600),
    }

    max_connections: int = 10_000
    """Streams of one process; further ones are refused, and readers try another process."""
    max_per_key: int = 20
    """Streams of one person, and of one API key."""
    buffer: int = 100
    """Notifications buffered for a slow reader; one more ends the stream, and the reader resumes it."""
    heartbeat_seconds: float = 30.0
    write_seconds: float = 10.0
    """How long a write to a reader may wait."""
    lifetime_seconds: float = 3600.0
    """The longest life of a stream; its reader reconnects, perhaps to another replica."""
    recheck_seconds: float = 60.0
    """How often the process checks a reader's token again."""
    retry_ms: int = 3000
    """How long a reader waits before it reconnects."""
    ticket_seconds: float = 60.0
    """How long a ticket is valid."""
    presence_seconds: float = 30.0
    """After this time without a renewal, a replica counts as gone."""
    demo: bool = True
    """True serves the page /inbox, which shows a person's stream."""


class Alerts(Section, frozen=True):
    """Where alerts about dead letters go."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "poll_seconds": (0.001, 3600),
    }

    sinks: list[Literal["auto", "redis", "log", "webhook", "rabbitmq", "servicebus"]] = []
    """Every sink gets every alert; `auto` is Redis if it is configured, else the log."""
    name: str = "listo-notifications-alerts"
    """The stream in Redis, the queue in RabbitMQ, the queue or topic in Service Bus."""
    synchronous: bool = False
    """True sends alerts about synchronous deliveries too, whose callers know already."""
    webhook_url: str | None = None
    webhook_secrets: list[str] = []
    """Newest first; each of them signs."""
    rabbitmq_url: str | None = None
    servicebus_connection_string: str = ""
    poll_seconds: float = 1.0


class HistorySettings(Section, frozen=True):
    """The archive of finished notifications; none without a URL."""

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
    """Rows younger than this wait for the next copy, so that small corrections of the database's clock lose nothing."""
    timeout_seconds: float = 15.0


class RetentionSettings(Section, frozen=True):
    """How long finished notifications and malformed intents are kept."""

    record_seconds: float = 30 * 86400.0
    malformed_seconds: float = 90 * 86400.0
    audit_seconds: float = 90 * 86400.0
    """How long the rows of `audit_logs` are kept."""
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
    """Log messages by verdict or event name, in place of the built-in ones; fields stand in braces."""
    name_people: bool = False
    """True logs the recipient of each attempt."""


class Push(Section, frozen=True):
    """The queue, the marks, and the service that templates are fetched from."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "mark_seconds": (1, 365 * 86_400),
        # AMQP carries it in 16 bits, and 0 would mean no bound at all.
        "prefetch": (1, 65_535),
        "requeue_pause_seconds": (0.001, 3600),
        "half_open_wait_seconds": (0, 3600),
        "template_timeout_seconds": (0.001, 3600),
        "template_cache_seconds": (0, 86_400),
    }

    rabbitmq_url: str = ""
    queue: str = "push.queue"
    failed_queue: str = "failed.queue"
    exchange: str | None = None
    """A direct exchange to which both queues are bound, by the keys `push` and `failed`; declared if missing."""
    prefetch: int = 10
    """Messages that one process holds unacknowledged; `work.concurrency`, where only that is set."""
    takeover_after: float = 300.0
    """A `processing` mark of this age belongs to a dead worker."""
    mark_seconds: int = 86_400
    requeue_pause_seconds: float = 1.0
    """The pause before a message returns to the queue."""
    half_open_overflow: Literal["wait", "dlq"] = "wait"
    """What a message does while the probe of another one runs."""
    half_open_wait_seconds: float = 15.0
    retry_429: bool = True
    """False treats 429 and 408 as other 4xx: no retry."""
    missing_variable: Literal["error", "empty", "keep"] = "error"
    template_service_url: str = ""
    template_service_token: str = ""
    """The token that the template service asks for, sent as a bearer token; empty sends none."""
    template_service_token_file: str | None = None
    """A file that holds this token; it is read anew for every request."""
    template_timeout_seconds: float = 10.0
    template_cache_seconds: float = 0.0
    """0 fetches the template of every message."""

    @property
    def half_open_seconds(self) -> float:
        """How long a message waits for the probe of another one."""
        return self.half_open_wait_seconds if self.half_open_overflow == "wait" else 0.0


class TaskPicker(Section, frozen=True):
    """How the sse blueprint claims and delivers notifications."""

    bounds: ClassVar[dict[str, Bounds]] = {"lease_cleanup_interval": (0.01, 86_400)}

    instance_id: str = "auto"
    """The value of `processing_by`; `auto` is a UUID of each process."""
    poll_interval: float = 1.0
    batch_size: int = 100
    lease_duration: float = 30.0
    max_retries: int = 3
    """The total number of attempts of a notification."""
    lease_cleanup_interval: float = 10.0
    """How often the worker resets expired leases."""
    offline_policy: Literal["hold", "fail"] = "hold"
    """A notification for a person who is not connected waits (`hold`) or fails."""
    delivery_failure: Literal["retry", "terminal"] = "retry"
    """`terminal` gives up after the first failure."""
    ageing: bool = False
    """True gives every priority a share of each claim, so that the lowest never starves."""
    poll_intervals: dict[Literal["HIGH", "MEDIUM", "LOW"], float] = {}
    """Priorities with their own poll interval."""
