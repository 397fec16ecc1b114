"""The settings of the Kafka door."""

import msgspec


class Kafka(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The Kafka topic that messages are read from; nothing is read without brokers."""

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
