"""Opens the ledger that a database URL names."""

from typing import Any, TypeAlias
from urllib.parse import unquote

from carillon.domain.errors import ConfigurationError
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.postgres.pools import PoolRules
from carillon.ledger.rows import ALERT_FROM, NEW_INTENT_HINT, RECOVERY_HINT
from carillon.ledger.sealing import Seals
from carillon.ledger.sqlite.ledger import SqliteLedger

Ledger: TypeAlias = PostgresLedger | SqliteLedger

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


async def open_ledger(
    url: str,
    *,
    lease_seconds: float = 30.0,
    record_attempts: bool = True,
    replay: str = "redrive",
    alerts: bool = False,
    alert_from: int = ALERT_FROM,
    allow_migration: int = 0,
    allow_unsafe: bool = False,
    rules: PoolRules | None = None,
    seals: Seals | None = None,
) -> Ledger:
    """`postgresql://…`, or `sqlite:///relative/path`, or `sqlite:////absolute/path`."""
    shared: dict[str, Any] = {
        "lease_seconds": lease_seconds,
        "record_attempts": record_attempts,
        "recovery_hint": NEW_INTENT_HINT if replay == "new_intent" else RECOVERY_HINT,
        "alerts": alerts,
        "alert_from": alert_from,
        "allow_migration": allow_migration,
        "seals": seals,
    }
    if url.startswith(_SQLITE):
        path = unquote(url.removeprefix(_SQLITE).partition("?")[0])
        if not path:
            raise ConfigurationError("the database URL names no file; write sqlite:///carillon.db")
        return await SqliteLedger.open(path, **shared)
    if url.startswith(_POSTGRES):
        return await PostgresLedger.open(url, **shared, allow_unsafe=allow_unsafe, rules=rules)
    # The message does not show the URL, because it may contain a password.
    raise ConfigurationError("the database URL must begin with postgresql:// or sqlite:///")
