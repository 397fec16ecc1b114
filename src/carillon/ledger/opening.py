"""Which ledger a database URL means."""

from typing import TypeAlias
from urllib.parse import unquote

from carillon.domain.errors import ConfigurationError
from carillon.ledger.postgres import PostgresLedger
from carillon.ledger.sqlite import SqliteLedger

Ledger: TypeAlias = PostgresLedger | SqliteLedger

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


async def open_ledger(url: str, *, lease_seconds: float = 30.0, allow_unsafe: bool = False) -> Ledger:
    """`postgresql://…`, or `sqlite:///relative/path`, or `sqlite:////absolute/path`."""
    if url.startswith(_SQLITE):
        path = unquote(url.removeprefix(_SQLITE).partition("?")[0])
        if not path:
            raise ConfigurationError("the database URL names no file; write sqlite:///carillon.db")
        return await SqliteLedger.open(path, lease_seconds=lease_seconds)
    if url.startswith(_POSTGRES):
        return await PostgresLedger.open(url, lease_seconds=lease_seconds, allow_unsafe=allow_unsafe)
    # Without the URL itself: it may carry a password.
    raise ConfigurationError("the database URL must begin with postgresql:// or sqlite:///")
