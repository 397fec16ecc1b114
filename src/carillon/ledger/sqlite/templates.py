"""Stored templates in SQLite."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from carillon.domain.templates import Draft, StoredTemplate
from carillon.ledger.questions import bound
from carillon.ledger.sqlite.file import SqliteFile
from carillon.ledger.template_rows import TEMPLATE_FILTERS, asked, draft_values, page, stored


class SqliteTemplates:
    """Satisfies TemplateLedger."""

    _file: SqliteFile
    _sql: Mapping[str, str]

    async def add_template(self, draft: Draft, new_id: str, version: int | None = None) -> StoredTemplate | None:
        values = draft_values(draft, new_id, version)
        row = await self._file.write(
            lambda connection, now: connection.execute(self._sql["add_template"], (*values, now)).fetchone()
        )
        return None if row is None else stored(dict(row))

    async def template(self, template_id: str, version: int | None = None) -> StoredTemplate | None:
        found = await self._templates("template", template_id, version)
        return found[0] if found else None

    async def template_history(self, template_id: str) -> list[StoredTemplate]:
        return await self._templates("template_history", template_id)

    async def list_templates(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[StoredTemplate], int]:
        values = bound(filters, TEMPLATE_FILTERS)
        rows = await self._file.read(
            lambda connection, _: connection.execute(self._sql["list_templates"], (*values, limit, offset)).fetchall()
        )
        return page([dict(row) for row in rows])

    async def retire_template(self, template_id: str, *, delete: bool = False) -> int:
        return await self._file.write(
            lambda connection, now: (
                connection.execute(self._sql["retire_template"], (template_id, delete, now)).rowcount
            )
        )

    async def current_templates(self, keys: Sequence[tuple[str | None, str]]) -> list[StoredTemplate]:
        return await self._templates("current_templates", json.dumps(asked(keys)))

    async def template_revision(self) -> tuple[int, int]:
        row = await self._file.read(lambda connection, _: connection.execute(self._sql["template_revision"]).fetchone())
        return row["versions"], row["active"]

    async def template_variants(self) -> list[tuple[str | None, str, str, str]]:
        rows = await self._file.read(
            lambda connection, _: connection.execute(self._sql["template_variants"]).fetchall()
        )
        return [(row["tenant_id"] or None, row["template_key"], row["channel"], row["locale"]) for row in rows]

    async def _templates(self, statement: str, *values: object) -> list[StoredTemplate]:
        rows = await self._file.read(lambda connection, _: connection.execute(self._sql[statement], values).fetchall())
        return [stored(dict(row)) for row in rows]
