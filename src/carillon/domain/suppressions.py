"""Addresses that nothing more is sent to."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec


class Silence(msgspec.Struct, frozen=True):
    """Nothing more to this address, for one tenant or, where the tenant is empty, for everybody."""

    channel: str
    address: str
    tenant_id: str
    reason: str
    source: str
    """Who said so: delivery, receipt, operator or unsubscribe."""
    seconds: float | None = None
    """For how long; None is for ever."""


class SuppressionLedger(Protocol):
    """Where silences are kept."""

    async def suppress(self, silences: Sequence[Silence]) -> None:
        """Write silences down; one that is there already only ever grows longer."""
        ...

    async def unsuppress(self, channel: str, address: str, tenant_id: str) -> bool:
        """End one silence; False when there was none."""
        ...

    async def suppressions(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Silences that hold now, newest first, and how many match in all."""
        ...
