"""Templates in the ledger, and the locale in which a person is addressed."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from carillon.domain.notifications import Message, Template

KEY = r"^[a-z0-9._-]+\Z"
LOCALE = r"^[a-z]{2}(-[A-Z]{2})?\Z"
LONGEST_KEY, LONGEST_SUBJECT, LONGEST_BODY, LONGEST_HTML = 200, 500, 50_000, 100_000
CATALOGUE_KEY = "translations"
"""The key of the catalogues: templates of the kind `catalogue`, one for each locale."""
RESERVED_BRAND = "default"
"""The brand under all others."""

EngineName = Literal["simple", "jinja"]
Kind = Literal["message", "layout", "partial", "catalogue"]
LONG_SUBJECT = 150
CUT_HTML = 100 * 1024
_UNWRITTEN = re.compile(r"\{#.*?(?:#\}|\Z)|\{\{.*?(?:\}\}|\Z)", re.DOTALL)
"""What is not closed goes on to the end: else each of many openings would be followed to the end in vain."""
_UNKNOWN = re.compile(r"<(mj-[\w-]++)")
"""An element that is not HTML: MJML has handed it on as it was."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a template's next version."""

    template_key: str
    channel: str
    locale: str
    body: str
    subject: str | None = None
    html: str | None = None
    name: str | None = None
    description: str | None = None
    default_variables: dict[str, Any] = {}
    engine: EngineName = "simple"
    kind: Kind = "message"
    mjml: str | None = None
    layout: str | None = None
    sample: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    is_active: bool = True
    tenant_id: str | None = None
    """The tenant that owns the template; None if all tenants share it."""
    created_by: str | None = None
    category: str | None = None
    """The category of messages that name none."""

    @classmethod
    def of(cls, template: Template, tenant_id: str | None = None) -> "Draft":
        """A draft from a template of a file."""
        return cls(
            template_key=template.code,
            channel=template.channel,
            locale=template.locale,
            body=template.text,
            subject=template.subject,
            html=template.html,
            default_variables=template.default_variables,
            engine=template.engine,
            kind=template.kind,
            mjml=template.mjml,
            layout=template.layout,
            sample=template.sample,
            fields=template.fields,
            tenant_id=tenant_id,
            category=template.category,
        )

    def unstored(self) -> Template:
        """The template that this draft would be."""
        return Template(
            code=self.template_key,
            channel=self.channel,
            locale=self.locale,
            text=self.body,
            subject=self.subject,
            html=self.html,
            default_variables=self.default_variables,
            engine=self.engine,
            kind=self.kind,
            mjml=self.mjml,
            layout=self.layout,
            sample=self.sample,
            fields=self.fields,
            category=self.category,
        )


class StoredTemplate(Draft, frozen=True, kw_only=True):
    """One stored version; nothing of it changes except that `is_active` may become false."""

    template_id: str
    """The same for every version of one tenant's key, channel and locale."""
    version: int
    created_at: int
    updated_at: int
    deleted_at: int | None = None

    def template(self) -> Template:
        return msgspec.structs.replace(self.unstored(), version=self.version, template_id=self.template_id)

    def draft(self, **changes: Any) -> Draft:  # noqa: ANN401 - fields of Draft
        """The same content again, as the next version."""
        kept = {name: getattr(self, name) for name in Draft.__struct_fields__}
        return Draft(**{**kept, **changes})


class TemplateLedger(Protocol):
    """The store of templates; the version in use is the highest active one."""

    async def add_template(self, draft: Draft, new_id: str, version: int | None = None) -> StoredTemplate | None:
        """Store the next version; None if `version` is given and is not the next one."""
        ...

    async def add_templates(self, drafts: Sequence[Draft], ids: Callable[[], str]) -> list[StoredTemplate]:
        """Store the next version of every draft, all or none."""
        ...

    async def template(self, template_id: str, version: int | None = None) -> StoredTemplate | None:
        """One version; without a number, the one in use, else the newest. A deleted one only if all are deleted."""
        ...

    async def template_history(self, template_id: str) -> list[StoredTemplate]:
        """Every version, newest first."""
        ...

    async def list_templates(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[StoredTemplate], int]:
        """One page of templates, sorted by key, channel and locale, and the total number that match."""
        ...

    async def retire_template(self, template_id: str, *, delete: bool = False) -> int:
        """Deactivate every version, or delete them until a new one is stored; returns how many changed."""
        ...

    async def current_templates(self, keys: Sequence[tuple[str | None, str]]) -> list[StoredTemplate]:
        """The templates in use for each (tenant, key)."""
        ...

    async def template_revision(self) -> tuple[int, int]:
        """A value that differs after every change."""
        ...

    async def template_variants(self) -> list[tuple[str | None, str, str, str]]:
        """Tenant, key, channel and locale of every template in use."""
        ...


def unfit_name(code: str, locale: str) -> str | None:
    """None if the key and the locale are valid, otherwise the error."""
    if len(code) > LONGEST_KEY or not re.fullmatch(KEY, code):
        return f"a key is at most {LONGEST_KEY} of a-z, 0-9, '.', '_' and '-'"
    return None if re.fullmatch(LOCALE, locale) else "a locale is written as en or en-US"


def unfit_parts(draft: Draft) -> tuple[str, str] | None:
    """The part of a draft that does not go with the others, and why; None if they go together."""
    if not draft.body and draft.html is None and draft.mjml is None:
        return "text", "bodyTemplate is missing: give a text, htmlTemplate or mjml"
    if (draft.html is not None or draft.mjml is not None) and draft.channel != "email":
        return "mjml" if draft.html is None else "html", "only an email has HTML"
    if draft.html is not None and draft.mjml is not None:
        return "mjml", "give htmlTemplate or mjml, not both"
    if draft.engine == "simple" and (draft.mjml or draft.layout or draft.kind != "message" or not draft.body):
        return "engine", "mjml, layout, kind and a text made from HTML need the jinja engine"
    return None


def unfit_text(draft: Draft) -> str | None:
    """Why a template of a folder could never be sent, though it compiles; None if it could. The API takes none such."""
    subject = draft.subject or ""
    if draft.engine == "jinja":
        # What stands between the lines of a tag is no part of the subject.
        subject = _UNWRITTEN.sub(lambda found: "" if found.group().startswith("{#") else "tag", subject)
    subject = subject.strip()
    # A statement may stand in a line of its own, which says nothing.
    if draft.kind == "message" and "\n" in subject and "{%" not in subject:
        return "the subject must be one line of text"
    empty = [
        name for name, text in (("html", draft.html), ("mjml", draft.mjml)) if text is not None and not text.strip()
    ]
    return f"{empty[0]} is empty" if empty else None


def too_long_part(draft: Draft) -> str | None:
    """Which part of a template is longer than the API takes it; None if none is. Catalogues may be long."""
    limits = (
        ("subject", draft.subject, LONGEST_SUBJECT),
        ("text", draft.body, LONGEST_BODY),
        ("html", draft.html, LONGEST_HTML),
        ("mjml", draft.mjml, LONGEST_HTML),
    )
    long = [(part, most) for part, said, most in limits if len(said or "") > most and draft.kind != "catalogue"]
    return f"{long[0][0]} has more than {long[0][1]} characters" if long else None


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
    """The templates that are missing in a supported locale; a tenant's templates are completed by the shared ones."""
    locales: dict[tuple[str, str, str], set[str]] = {}
    for tenant, key, channel, locale in existing:
        locales.setdefault((tenant or "", key, channel), set()).add(locale)
    found: list[Gap] = []
    for (tenant_id, key, channel), own in locales.items():
        # A shared template fills a tenant's gap, and gaps of shared templates are listed once.
        if not tenant_id or ("", key, channel) not in locales:
            found += [Gap(key, channel, locale, tenant_id) for locale in set(supported) - own]
    return sorted(found)


_TAG = re.compile(r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$")
_MAX_HEADER = 1000


class LocaleRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a requested locale is resolved to an existing one."""

    default: str = "en-US"
    on_missing: Literal["error", "default", "chain"] = "error"
    """error: only the requested locale; default: that one, else the default; chain: pt-BR → pt → default."""


def parse_accept_language(header: str) -> list[str]:
    """The tags of an Accept-Language header, best first, without invalid ones and `*`."""
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
    """The first locale that is set: in the request, by the person, in the header, by the tenant, by the system."""
    for said in (explicit, preferred):
        if said:
            return said
    if accept_language:
        tags = parse_accept_language(accept_language)
        if tags:
            return tags[0]
    return tenant_default or default


def written_as(wished: str, locale: str) -> str:
    """Numbers and days are written as in the person's own country, if the template speaks their language."""
    return wished if wished.partition("-")[0] == locale.partition("-")[0] else locale


def resolve_locale(wished: str, existing: Collection[str], rules: LocaleRules) -> str | None:
    """The existing locale for the requested one; None if the rules allow none."""
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


def warnings(template: Template, message: Message) -> list[str]:
    """What is no error and yet worth a look before the template is used."""
    found: list[str] = []
    if template.channel == "email" and not message.subject:
        found.append("the email has no subject")
    if message.subject is not None and len(message.subject) > LONG_SUBJECT:
        found.append(f"mail programs cut a subject of more than {LONG_SUBJECT} characters")
    if message.html is not None and len(message.html.encode()) > CUT_HTML:
        found.append("mail programs cut HTML of more than 100 KiB")
    if not message.text.strip():
        found.append("the text is empty")
    if template.mjml is not None:
        found += [
            f"{name} is no element of MJML, or not at its place" for name in _unknown_elements(message.html or "")
        ]
    return found


def _unknown_elements(html: str) -> list[str]:
    first, *more = html.split("<!--")
    seen = "".join((first, *(piece.partition("-->")[2] for piece in more)))
    return sorted(set(_UNKNOWN.findall(seen)))
