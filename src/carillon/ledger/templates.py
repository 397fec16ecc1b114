"""Stored templates: a version is written once; only `is_active` changes, from true to false."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.intents import canonical
from carillon.domain.ports import Ids
from carillon.domain.store import NOTHING, Ask, Engine, Row, Steps, Values
from carillon.domain.templates import Draft, StoredTemplate
from carillon.ledger.rows import chosen

_FILTERS = (
    "tenant_id",
    "template_key",
    "channel",
    "locale",
    "is_active",
    "after_key",
    "after_channel",
    "after_locale",
    "after_tenant",
)
_ROUNDS = 100


class TemplateStore:
    """Satisfies TemplateLedger."""

    engine: Engine

    async def add_template(self, draft: Draft, new_id: str, version: int | None = None) -> StoredTemplate | None:
        values = {**_columns(draft), "template_id": new_id, "version": version}
        # In every round one writer gets the number, and the others try the next one.
        for _ in range(_ROUNDS):
            rows = await self.engine.write("add_template", values, repeatable=False)
            if rows:
                return _stored(rows[0])
            if version is not None:
                return None
        raise LedgerUnavailable("too many writers store versions of this template at once; try again")

    async def add_templates(self, drafts: Sequence[Draft], ids: Ids) -> list[StoredTemplate]:
        """Store the next version of every draft in one transaction; a draft that cannot be stored undoes all."""

        def steps() -> Steps[list[StoredTemplate]]:
            made: list[StoredTemplate] = []
            for draft in drafts:
                rows = yield Ask("add_template", {**_columns(draft), "template_id": ids(), "version": None})
                if not rows:
                    raise LedgerUnavailable("somebody else stores a version of these templates at once; try again")
                made.append(_stored(rows[0]))
            return made

        return await self.engine.change(steps, repeatable=False) if drafts else []

    async def template(self, template_id: str, version: int | None = None) -> StoredTemplate | None:
        found = await self._templates("template", {"template_id": template_id, "version": version})
        return found[0] if found else None

    async def template_history(self, template_id: str) -> list[StoredTemplate]:
        return await self._templates("template_history", {"template_id": template_id})

    async def list_templates(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[StoredTemplate], int]:
        values = {**chosen(filters, _FILTERS), "limit": limit, "offset": offset}
        rows = await self.engine.rows("list_templates", values)
        # The total is there also for an empty page.
        return [_stored(row) for row in rows if row["template_id"] is not None], rows[0]["total"]

    async def retire_template(self, template_id: str, *, delete: bool = False) -> int:
        values = {"template_id": template_id, "delete": delete}
        return len(await self.engine.write("retire_template", values, repeatable=True))

    async def current_templates(self, keys: Sequence[tuple[str | None, str]]) -> list[StoredTemplate]:
        asked = sorted({(tenant or "", key) for tenant, key in keys})
        each = [{"tenant_id": tenant, "template_key": key} for tenant, key in asked]
        return [_stored(row) for row in await self.engine.rows("current_templates", each=each)]

    async def template_revision(self) -> tuple[int, int]:
        (row,) = await self.engine.rows("template_revision")
        return row["versions"], row["active"]

    async def template_variants(self) -> list[tuple[str | None, str, str, str]]:
        rows = await self.engine.rows("template_variants")
        return [(row["tenant_id"] or None, row["template_key"], row["channel"], row["locale"]) for row in rows]

    async def _templates(self, statement: str, values: Values = NOTHING) -> list[StoredTemplate]:
        return [_stored(row) for row in await self.engine.rows(statement, values)]


def _columns(draft: Draft) -> Row:
    return {
        **msgspec.structs.asdict(draft),
        "tenant_id": draft.tenant_id or "",
        "default_variables_json": canonical(draft.default_variables) if draft.default_variables else None,
        "sample_json": canonical(draft.sample) if draft.sample else None,
        "fields_json": canonical(draft.fields) if draft.fields else None,
    }


def _stored(row: Row) -> StoredTemplate:
    """One stored version."""
    defaults, sample, fields = row["default_variables_json"], row["sample_json"], row["fields_json"]
    return StoredTemplate(
        template_id=row["template_id"],
        tenant_id=row["tenant_id"] or None,
        template_key=row["template_key"],
        channel=row["channel"],
        locale=row["locale"],
        version=row["version"],
        name=row["name"],
        description=row["description"],
        subject=row["subject"],
        body=row["body"],
        html=row["html"],
        default_variables={} if defaults is None else json.loads(defaults),
        engine=row["engine"],
        kind=row["kind"],
        mjml=row["mjml"],
        layout=row["layout"],
        sample={} if sample is None else json.loads(sample),
        fields={} if fields is None else json.loads(fields),
        is_active=bool(row["is_active"]),
        category=row["category"],
        created_by=row["created_by"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        deleted_at=row["deleted_at"],
    )
