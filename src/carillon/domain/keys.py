"""API keys as the ledger keeps them: who may ask as which tenant; the secret itself is nowhere."""

from collections.abc import Sequence
from typing import Protocol

import msgspec


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is about to be written down."""

    key_id: str
    secret_hash: str
    """SHA-256 of the secret part, in hex; the part is random enough for a fast hash."""
    tenant_id: str | None
    role: str
    name: str
    lives_seconds: float | None = None


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is written down; times are milliseconds since 1970."""

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
        """The key with this public part, whatever became of it; raises LedgerUnavailable."""
        ...

    async def touch_api_key(self, key_id: str, every_seconds: float) -> None:
        """Note that it was used, unless that was noted already within this time."""
        ...


class KeyLedger(KeyFinder, Protocol):
    """Where keys are made and taken back."""

    async def add_api_key(self, key: NewKey, most: int) -> ApiKey | None:
        """Write it down; None when its name has `most` active keys already."""
        ...

    async def api_keys(self) -> Sequence[ApiKey]:
        """All of them, newest first."""
        ...

    async def revoke_api_key(self, key_id: str) -> ApiKey | None:
        """Take it back; the first time counts. None when there is none."""
        ...
