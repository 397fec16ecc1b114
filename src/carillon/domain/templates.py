"""Templates in the ledger, and the locale in which a person is addressed."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from carillon.domain.notifications import Template

KEY = r"^[a-z0-9._-]+\Z"
LOCALE = r"^[a-z]{2}(-[A-Z]{2})?\Z"
LONGEST_KEY, LONGEST_SUBJECT, LONGEST_BODY, LONGEST_HTML = 200, 500, 50_000, 100_000


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to be the next version."""

    template_key: str
    channel: str
    locale: str
    body: str
    subject: str | None = None
    html: str | None = None
    name: str | None = None
    description: str | None = None
    default_variables: dict[str, Any] = {}
    is_active: bool = True
    tenant_id: str | None = None
    """Whose it is; None is everybody's."""
    created_by: str | None = None

    @classmethod
    def of(cls, template: Template, tenant_id: str | None = None) -> "Draft":
        """A template from a file, to be kept."""
        return cls(
            template_key=template.code,
            channel=template.channel,
            locale=template.locale,
            body=template.text,
            subject=template.subject,
            html=template.html,
            default_variables=template.default_variables,
            tenant_id=tenant_id,
        )


class StoredTemplate(Draft, frozen=True, kw_only=True):
    """One version; it never changes, only `is_active` may end."""

    template_id: str
    """The same for every version: what a tenant says under one key, on one channel, in one locale."""
    version: int
    created_at: int
    updated_at: int
    deleted_at: int | None = None

    def template(self) -> Template:
        return Template(
            code=self.template_key,
            channel=self.channel,
            locale=self.locale,
            text=self.body,
            subject=self.subject,
            html=self.html,
            version=self.version,
            default_variables=self.default_variables,
            template_id=self.template_id,
        )

    def draft(self, **changes: Any) -> Draft:  # noqa: ANN401 - fields of Draft
        """The same content again, as the next version."""
        kept = {name: getattr(self, name) for name in Draft.__struct_fields__}
        return Draft(**{**kept, **changes})


class TemplateLedger(Protocol):
    """Where templates are kept; the version in use is the highest active one."""

    async def add_template(self, draft: Draft, new_id: str, version: int | None = None) -> StoredTemplate | None:
        """Write the next version; None when `version` is given and is not the next one."""
        ...

    async def template(self, template_id: str, version: int | None = None) -> StoredTemplate | None:
        """One version, without a number the one in use, else the newest; a deleted one only when all are."""
        ...

    async def template_history(self, template_id: str) -> list[StoredTemplate]:
        """Every version, newest first."""
        ...

    async def list_templates(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[StoredTemplate], int]:
        """Each template in its shown version, sorted by key, channel and locale; and how many match in all."""
        ...

    async def retire_template(self, template_id: str, *, delete: bool = False) -> int:
        """Switch every version off, or delete all of them until a new one is written; answers how many changed."""
        ...

    async def current_templates(self, keys: Sequence[tuple[str | None, str]]) -> list[StoredTemplate]:
        """What is in use under each tenant and key."""
        ...

    async def template_revision(self) -> tuple[int, int]:
        """Different after every change."""
        ...

    async def template_variants(self) -> list[tuple[str | None, str, str, str]]:
        """Tenant, key, channel and locale of everything in use."""
        ...


def unfit_name(code: str, locale: str) -> str | None:
    """None when a template of this key and locale may be kept, otherwise why not."""
    if len(code) > LONGEST_KEY or not re.fullmatch(KEY, code):
        return f"a key is at most {LONGEST_KEY} of a-z, 0-9, '.', '_' and '-'"
    return None if re.fullmatch(LOCALE, locale) else "a locale is written as en or en-US"


class Gap(msgspec.Struct, frozen=True, order=True):
    """A language in which a template does not exist."""

    template_key: str
    channel: str
    locale: str
    tenant_id: str = ""

    def __str__(self) -> str:
        whose = f" for tenant {self.tenant_id}" if self.tenant_id else ""
        return f"{self.template_key}/{self.locale}/{self.channel}{whose}"


def gaps(existing: Iterable[tuple[str | None, str, str, str]], supported: Collection[str]) -> list[Gap]:
    """What is missing for every template to exist in every supported locale; a tenant's own stand on everybody's."""
    locales: dict[tuple[str, str, str], set[str]] = {}
    for tenant, key, channel, locale in existing:
        locales.setdefault((tenant or "", key, channel), set()).add(locale)
    found: list[Gap] = []
    for (tenant_id, key, channel), own in locales.items():
        # Behind a tenant's own stand everybody's, whose gaps are said once.
        if not tenant_id or ("", key, channel) not in locales:
            found += [Gap(key, channel, locale, tenant_id) for locale in set(supported) - own]
    return sorted(found)


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
