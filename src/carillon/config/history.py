"""The settings of history: where what has ended is kept for looking back."""

import msgspec


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where what has ended is kept for looking back; nowhere without a URL."""

    url: str | None = None
    """`http://…` or `https://…` of ClickHouse's HTTP interface with the database as its path, or `chdb:///folder`."""
    keep_days: int = 30
    batch: int = 5000
    poll_seconds: float = 5.0
    lag_seconds: float = 1.0
    """What changed so recently waits for the next look: small corrections of the database's clock lose nothing."""
    timeout_seconds: float = 15.0
