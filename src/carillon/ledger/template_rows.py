"""Stored templates as rows, the same for every engine."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from carillon.domain.canonical import canonical
from carillon.domain.templates import Draft, StoredTemplate

TEMPLATE_FILTERS = ("tenant_id", "template_key", "channel", "locale", "is_active")


def draft_values(draft: Draft, new_id: str, version: int | None) -> tuple[Any, ...]:
    """The parameters of `add_template`."""
    return (
        new_id,
        draft.tenant_id or "",
        draft.template_key,
        draft.channel,
        draft.locale,
        draft.name,
        draft.description,
        draft.subject,
        draft.body,
        draft.html,
        canonical(draft.default_variables) if draft.default_variables else None,
        draft.is_active,
        draft.created_by,
        version,
    )


def stored(row: Mapping[str, Any]) -> StoredTemplate:
    """One version as it was written."""
    defaults = row["default_variables_json"]
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
        is_active=bool(row["is_active"]),
        created_by=row["created_by"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        deleted_at=row["deleted_at"],
    )


def page(rows: Sequence[Mapping[str, Any]]) -> tuple[list[StoredTemplate], int]:
    """The rows of `list_templates`: even an empty page says how many match."""
    return [stored(row) for row in rows if row["template_id"] is not None], rows[0]["total"]


def asked(keys: Iterable[tuple[str | None, str]]) -> list[tuple[str, str]]:
    """Each tenant and key once."""
    return sorted({(tenant or "", key) for tenant, key in keys})
