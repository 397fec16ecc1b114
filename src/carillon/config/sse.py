"""The settings of live streams: how many, how long, and how patiently."""

import msgspec


class Sse(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How people's streams are served."""

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
