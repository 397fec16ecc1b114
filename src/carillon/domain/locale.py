"""Which language a person is spoken to in."""

import re
from collections.abc import Collection
from typing import Literal

import msgspec

_TAG = re.compile(r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$")
_MAX_HEADER = 1000


class LocaleRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a wished locale becomes one that exists."""

    default: str = "en-US"
    on_missing: Literal["error", "default", "chain"] = "error"
    """error: exactly the wished one; default: exactly it, else the default; chain: pt-BR → pt → default."""


def parse_accept_language(header: str) -> list[str]:
    """The tags of an Accept-Language header, best first; junk and `*` are left out."""
    found: list[tuple[float, int, str]] = []
    for position, part in enumerate(header[:_MAX_HEADER].split(",")):
        tag, _, parameters = part.strip().partition(";")
        tag = tag.strip()
        quality = _quality(parameters)
        if _TAG.match(tag) and quality > 0:
            found.append((-quality, position, tag))
    return [tag for _, _, tag in sorted(found)]


def _quality(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if not name:
        return 1.0
    try:
        quality = float(value)
    except ValueError:
        return 0.0
    return quality if name.strip() == "q" and 0.0 <= quality <= 1.0 else 0.0


def wished_locale(
    explicit: str | None, preferred: str | None, accept_language: str | None, tenant_default: str | None, default: str
) -> str:
    """The first that is said: by the request, the person's preference, the header, the tenant, the system."""
    for said in (explicit, preferred):
        if said:
            return said
    if accept_language:
        tags = parse_accept_language(accept_language)
        if tags:
            return tags[0]
    return tenant_default or default


def resolve_locale(wished: str, existing: Collection[str], rules: LocaleRules) -> str | None:
    """The existing locale that serves the wish, or None when the rules allow no other."""
    if wished in existing:
        return wished
    match rules.on_missing:
        case "error":
            return None
        case "default":
            return rules.default if rules.default in existing else None
        case "chain":
            tag = wished
            while "-" in tag:
                tag = tag.rpartition("-")[0]
                if tag in existing:
                    return tag
            return rules.default if rules.default in existing else None
