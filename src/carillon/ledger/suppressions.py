"""Suppressions: addresses that nothing is sent to."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from carillon.domain.store import Engine, Row
from carillon.domain.suppressions import Silence
from carillon.ledger.questions import chosen
from carillon.ledger.rows import storable

_FILTERS = ("channel", "address", "tenant_id", "source")


class SuppressionStore:
    """Satisfies SuppressionLedger."""

    engine: Engine

    async def suppress(self, silences: Sequence[Silence]) -> None:
        await self.engine.write("suppress", each=silence_rows(silences), repeatable=True)

    async def unsuppress(self, channel: str, address: str, tenant_id: str) -> bool:
        key = {"channel": channel, "address": address, "tenant_id": tenant_id}
        return bool(await self.engine.write("unsuppress", key, repeatable=True))

    async def suppressions(self, filters: Mapping[str, Any], limit: int, offset: int) -> tuple[list[Row], int]:
        values = {**chosen(filters, _FILTERS), "limit": limit, "offset": offset}
        rows = await self.engine.rows("suppressions", values)
        return [row for row in rows if row["channel"] is not None], rows[0]["total"]


def silence_rows(silences: Iterable[Silence]) -> list[Row]:
    """The parameters of `suppress`: each suppression once, in the order in which they are locked."""
    once = {(each.channel, each.address, each.tenant_id): each for each in silences}
    return [
        {
            "channel": each.channel,
            "address": storable(each.address),
            "tenant_id": each.tenant_id,
            "reason": storable(each.reason),
            "source": each.source,
            "seconds": each.seconds,
        }
        for _, each in sorted(once.items(), key=lambda item: item[0])
    ]
