"""Stored templates in PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.templates import Draft, StoredTemplate
from carillon.ledger.postgres.pools import Pools
from carillon.ledger.questions import bound, plain
from carillon.ledger.template_rows import TEMPLATE_FILTERS, asked, draft_values, page, stored

_ROUNDS = 100


class PostgresTemplates:
    """Satisfies TemplateLedger."""

    _pools: Pools
    _sql: Mapping[str, str]

    async def add_template(self, draft: Draft, new_id: str, version: int | None = None) -> StoredTemplate | None:
        values = draft_values(draft, new_id, version)
        # In every round somebody gets a number; who does not, asks for the next one.
        for _ in range(_ROUNDS):
            rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["add_template"], *values), repeatable=False)
            if rows:
                return stored(plain(rows[0].items()))
            if version is not None:
                return None
        raise LedgerUnavailable("too many writers want the next version of this template")

    async def template(self, template_id: str, version: int | None = None) -> StoredTemplate | None:
        found = await self._templates("template", template_id, version)
        return found[0] if found else None

    async def template_history(self, template_id: str) -> list[StoredTemplate]:
        return await self._templates("template_history", template_id)

    async def list_templates(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[StoredTemplate], int]:
        values = bound(filters, TEMPLATE_FILTERS)
        rows = await self._pools.reads.run(
            lambda c: c.fetch(self._sql["list_templates"], *values, limit, offset), repeatable=True
        )
        return page([plain(row.items()) for row in rows])

    async def retire_template(self, template_id: str, *, delete: bool = False) -> int:
        rows = await self._pools.reads.run(
            lambda c: c.fetch(self._sql["retire_template"], template_id, delete), repeatable=True
        )
        return len(rows)

    async def current_templates(self, keys: Sequence[tuple[str | None, str]]) -> list[StoredTemplate]:
        pairs = asked(keys)
        return await self._templates("current_templates", [pair[0] for pair in pairs], [pair[1] for pair in pairs])

    async def template_revision(self) -> tuple[int, int]:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["template_revision"]), repeatable=True)
        return rows[0]["versions"], rows[0]["active"]

    async def template_variants(self) -> list[tuple[str | None, str, str, str]]:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql["template_variants"]), repeatable=True)
        return [(row["tenant_id"] or None, row["template_key"], row["channel"], row["locale"]) for row in rows]

    async def _templates(self, statement: str, *values: object) -> list[StoredTemplate]:
        rows = await self._pools.reads.run(lambda c: c.fetch(self._sql[statement], *values), repeatable=True)
        return [stored(plain(row.items())) for row in rows]
