"""Opens the ledger that a database URL names."""

import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from carillon.domain.errors import ConfigurationError
from carillon.ledger.migrate import PARTS
from carillon.ledger.postgres.ledger import PostgresLedger
from carillon.ledger.postgres.pools import PoolRules
from carillon.ledger.rows import ALERT_FROM, NEW_INTENT_HINT, RECOVERY_HINT
from carillon.ledger.sealing import Seals
from carillon.ledger.sqlite.ledger import SqliteLedger

Ledger: TypeAlias = PostgresLedger | SqliteLedger

SQLITE = "sqlite:///"
_OTHERS = 0o077
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
    parts: Collection[str] = PARTS,
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
        "parts": parts,
        "seals": seals,
    }
    if url.startswith(SQLITE):
        return await SqliteLedger.open(file_of(url), **shared)
    if url.startswith(_POSTGRES):
        return await PostgresLedger.open(url, **shared, allow_unsafe=allow_unsafe, rules=rules)
    # The message does not show the URL, because it may contain a password.
    raise ConfigurationError("the database URL must begin with postgresql:// or sqlite:///")


def file_of(url: str) -> str:
    """The path in a SQLite URL; ConfigurationError where there is none."""
    path = unquote(url.removeprefix(SQLITE).partition("?")[0])
    if not path:
        raise ConfigurationError("the database URL names no file; write sqlite:///carillon.db")
    return path


def address_file(url: str) -> Path | None:
    """The file beside a SQLite ledger in which a process leaves its address; none beside a server's ledger."""
    return Path(f"{file_of(url)}-url") if url.startswith(SQLITE) else None


def seen_by_others(url: str) -> str | None:
    """What to do about a SQLite file, made by another program or an older release, that others can read."""
    if not url.startswith(SQLITE):
        return None
    path = Path(file_of(url))
    for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        mode = stat.S_IMODE(each.stat().st_mode) if each.exists() else 0
        if mode & _OTHERS:
            return f"{each} has the mode {mode:04o}, so other users of this machine can read it: chmod 600 {each}"
    return None
