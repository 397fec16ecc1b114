"""API keys as the ledger stores them: the tenant and role of each, and a hash of its secret, never the secret."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to be stored."""

    key_id: str
    secret_hash: str
    """SHA-256 of the secret part, in hex; a fast hash is safe because the secret is long and random."""
    tenant_id: str | None
    role: str
    name: str
    lives_seconds: float | None = None


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A stored key; times are Unix milliseconds."""

    key_id: str
    secret_hash: str
    tenant_id: str | None
    role: str
    name: str
    created_at: float
    last_used_at: float | None = None
    expires_at: float | None = None
    revoked_at: float | None = None

    def active(self, now_ms: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now_ms < self.expires_at)


class KeyFinder(Protocol):
    """The store of API keys as the HTTP door uses it."""

    async def api_key(self, key_id: str) -> ApiKey | None:
        """The key with this public part, also if it has expired or is revoked; raises LedgerUnavailable."""
        ...

    async def touch_api_key(self, key_id: str, every_seconds: float) -> None:
        """Store the time of use, unless a use within the last `every_seconds` is stored already."""
        ...


class KeyLedger(KeyFinder, Protocol):
    """The store of API keys as operators use it."""

    async def add_api_key(self, key: NewKey, most: int) -> ApiKey | None:
        """Store a new key; None if its name has `most` active keys already."""
        ...

    async def api_keys(self) -> Sequence[ApiKey]:
        """All keys, newest first."""
        ...

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        """Revoke a key; a second call keeps the first time. None if there is no such key."""
        ...
