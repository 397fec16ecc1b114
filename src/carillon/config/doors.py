"""The sections of what comes in: the listener, who may call it, the queues that are read, live streams."""

from typing import ClassVar, Literal

from carillon.config.section import Bounds, Section


class Http(Section, frozen=True):
    """Where and how the HTTP listener serves."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "max_body_bytes": (1024, 64 * 1024 * 1024),
        "port": (0, 65_535),
        "header_timeout_seconds": (0.001, 86_400),
        "read_timeout_seconds": (0.001, 86_400),
        "idle_timeout_seconds": (0.001, 86_400),
    }

    host: str = "127.0.0.1"
    port: int = 8080
    max_body_bytes: int = 256 * 1024
    max_requests_in_flight: int = 1024
    header_timeout_seconds: float = 10.0
    read_timeout_seconds: float = 10.0
    idle_timeout_seconds: float = 60.0
    surface: Literal["full", "health", "probes"] = "full"
    """`probes` serves the two probes and nothing else, `health` the health checks beside them."""
    allowed_hosts: list[str] = []
    """Names served beside loopback; empty serves every name where everybody is asked who they are."""
    docs: bool = True
    console: bool = True
    requests_per_second: float = 0.0
    """Per token, or per address where nobody is asked; 0 is no limit, here and in the next four."""
    requests_burst: float = 200.0
    key_requests_per_second: float = 100.0
    anonymous_requests_per_second: float = 20.0
    """Per address, of those who show nothing although everybody is asked."""
    auth_failures_per_minute: float = 10.0


class Auth(Section, frozen=True):
    """Bearer tokens and API keys; without any of them only loopback is served."""

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
    """One `jti` to a line; looked at again every few seconds."""
    required: bool = False
    """True asks everybody for an API key although no tokens are configured."""

    def asked(self) -> bool:
        """Whether callers are asked who they are."""
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
    """The RabbitMQ queue that send requests are read from; none without its name."""

    bounds: ClassVar[dict[str, Bounds]] = {
        # AMQP carries it in 16 bits, and 0 would mean no bound at all.
        "prefetch": (1, 65_535),
    }

    url: str | None = None
    queue: str | None = None
    queue_type: Literal["classic", "quorum"] = "classic"
    """Of a queue that is not there yet; one that is there stays as its owner made it."""
    prefetch: int = 200
    """Deliveries held at once that are not written down yet."""


class Kafka(Section, frozen=True):
    """The Kafka topic that messages are read from; nothing is read without brokers."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "session_timeout_ms": (1000, 3_600_000),
        "batch": (1, 10_000),
    }

    bootstrap_servers: str | None = None
    """`host:port`, several with commas."""
    topic: str = "notifications"
    group_id: str = "notification-service"
    session_timeout_ms: int = 45_000
    """A process that is silent for so long loses its partitions to the others of its group."""
    batch: int = 500
    """Messages written down in one go, of each partition."""
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
    """Streams of one process; more are refused, to be tried elsewhere."""
    max_per_key: int = 20
    """Streams of one person, and of one API key."""
    buffer: int = 100
    """Notifications kept for a reader who is slow; one more ends the stream, which the reader resumes."""
    heartbeat_seconds: float = 15.0
    write_seconds: float = 10.0
    """How long a reader may make no room for what is written to it."""
    lifetime_seconds: float = 3600.0
    """A stream ends then and the reader comes again, perhaps to another replica."""
    recheck_seconds: float = 60.0
    """How often a reader's token is looked at again."""
    retry_ms: int = 3000
    """How long a reader waits before it comes again."""
    ticket_seconds: float = 60.0
    """How long a ticket may wait to open its stream."""
    presence_seconds: float = 30.0
    """How long a silent replica is believed to be there."""
    demo: bool = True
    """True serves the page /inbox, which shows a person's stream."""
