"""The JSON of templates, and the endpoints that only read: rendered with values, or by code for push workers."""

import re
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.consent import NAME, NO_CATEGORIES, Categories
from carillon.domain.errors import BadTemplate
from carillon.domain.notifications import Message, Template
from carillon.domain.ports import Templates
from carillon.domain.sms import Segments, segments_of
from carillon.domain.templates import (
    KEY,
    LOCALE,
    LONGEST_BODY,
    LONGEST_HTML,
    LONGEST_KEY,
    LONGEST_SUBJECT,
    LocaleRules,
    StoredTemplate,
    TemplateLedger,
    parse_accept_language,
    resolve_locale,
    wished_locale,
)
from carillon.upkeep.api.notifications_wire import ChannelWord
from carillon.web import Problem, Reply, Request
from carillon.web.problems import rfc3339_ms

TemplateKey = Annotated[str, Meta(pattern=KEY, min_length=1, max_length=LONGEST_KEY, examples=["order_confirmed"])]
Locale = Annotated[str, Meta(pattern=LOCALE, examples=["en-US"])]
Subject = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=LONGEST_SUBJECT)]
Body = Annotated[str, Meta(min_length=1, max_length=LONGEST_BODY)]
Html = Annotated[str, Meta(min_length=1, max_length=LONGEST_HTML, description="The rich part of an email.")]
Name = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=200)]
Description = Annotated[str, Meta(max_length=2000)]
CategoryName = Annotated[
    str, Meta(pattern=NAME, description="The category of messages that name none.", examples=["orders"])
]
Version = Annotated[int, Meta(ge=1, le=2_147_483_647)]
TenantId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,64}\Z")]
Truth = Annotated[str, Meta(pattern=r"^(true|false)\Z")]
"""Text, because loose conversion would also read `1` as a truth."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class TemplateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A template, or the next version of one."""

    template_key: TemplateKey
    channel: ChannelWord
    body_template: Body
    subject_template: Subject | None = None
    html_template: Html | None = None
    locale: Locale | None = None
    name: Name | None = None
    description: Description | None = None
    default_variables: Annotated[dict[str, Any], Meta(description="For variables a request leaves out.")] | None = None
    category: CategoryName | None = None
    is_active: bool = True
    version: Annotated[Version, Meta(description="Refused with CONFLICT unless it is the next one.")] | None = None
    tenant_id: Annotated[TenantId, Meta(description="Whose it is; everybody's without one.")] | None = None


class TemplateChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What the next version says otherwise; what is left out stays."""

    template_key: TemplateKey | UnsetType = UNSET
    channel: ChannelWord | UnsetType = UNSET
    locale: Locale | UnsetType = UNSET
    body_template: Body | UnsetType = UNSET
    subject_template: Subject | UnsetType | None = UNSET
    html_template: Html | UnsetType | None = UNSET
    name: Name | UnsetType | None = UNSET
    description: Description | UnsetType | None = UNSET
    default_variables: dict[str, Any] | UnsetType | None = UNSET
    category: CategoryName | UnsetType | None = UNSET
    is_active: bool | UnsetType = UNSET
    version: Annotated[Version, Meta(description="The version this change was made on.")] | UnsetType = UNSET


class PublishBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which version is copied as the next one."""

    version: Version


class RenderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A stored template by its id or its key, or one that is not stored at all, and the values."""

    template_id: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    version: Version | None = None
    template_key: TemplateKey | None = None
    channel: ChannelWord | None = None
    locale: Locale | None = None
    body_template: Body | None = None
    subject_template: Subject | None = None
    html_template: Html | None = None
    default_variables: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    variables: Annotated[dict[str, Any], Meta(description="Another name for data.")] | None = None


class TemplateView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One version of a template."""

    id: str
    tenant_id: str | None
    template_key: str
    name: str | None
    description: str | None
    channel: str
    locale: str
    subject_template: str | None
    body_template: str
    html_template: str | None
    default_variables: dict[str, Any]
    variables: list[str]
    category: str | None
    is_active: bool
    version: int
    created_by: str | None
    created_at: str
    updated_at: str


class TemplatePage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of templates, by key, channel and locale."""

    items: list[TemplateView]
    total_count: int
    page_number: int
    page_size: int
    total_pages: int


class TemplateHistory(msgspec.Struct, frozen=True):
    """Every version of one template, newest first."""

    items: list[TemplateView]


class Rendered(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a person would get."""

    body: str
    subject: str | None = None
    html: str | None = None
    channel: str | None = None
    locale: str | None = None
    version: int | None = None
    segments: Segments | None = None
    """The parts in which a carrier sends and charges it; only of a text message."""


class PushContent(msgspec.Struct, frozen=True):
    """The two texts of a push message, unrendered."""

    title: str | None
    body: str


class CodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A template as push workers read it."""

    id: str
    code: str
    type: str
    language: str
    version: int
    content: PushContent
    variables: list[str]


class TemplateQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which templates to list."""

    page_number: Annotated[int, Meta(ge=1, le=10_000)] = 1
    page_size: Annotated[int, Meta(ge=1, le=100)] = 20
    channel: ChannelWord | UnsetType = UNSET
    is_active: Truth | UnsetType = UNSET
    template_key: TemplateKey | UnsetType = UNSET
    locale: Locale | UnsetType = UNSET


class VersionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which version to show; without one the one in use, else the newest."""

    version: Version | UnsetType = UNSET


def template_view(stored: StoredTemplate, variables: list[str]) -> TemplateView:
    return TemplateView(
        id=stored.template_id,
        tenant_id=stored.tenant_id,
        template_key=stored.template_key,
        name=stored.name,
        description=stored.description,
        channel=stored.channel,
        locale=stored.locale,
        subject_template=stored.subject,
        body_template=stored.body,
        html_template=stored.html,
        default_variables=stored.default_variables,
        variables=variables,
        category=stored.category,
        is_active=stored.is_active,
        version=stored.version,
        created_by=stored.created_by,
        created_at=rfc3339_ms(stored.created_at),
        updated_at=rfc3339_ms(stored.updated_at),
    )


class TemplateTools(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of intake that the template endpoints use."""

    templates: Templates
    variables: Callable[[str], Collection[str]]
    """The variables of a text, in its order; raises BadTemplate."""
    check: Callable[[str], None]
    """Raises BadTemplate for a text that should not be kept."""
    render: Callable[[Template, Mapping[str, Any]], Message]
    """Raises BadIntent naming what is missing."""
    changed: Callable[[], None]
    """Must be called after every write."""
    locale: LocaleRules = LocaleRules()
    categories: Categories = NO_CATEGORIES

    def names(self, template: Template) -> list[str]:
        """Every variable of a template once, in its order."""
        parts = (template.subject or "", template.text, template.html or "")
        return list(dict.fromkeys(name for part in parts for name in self.variables(part)))


class TemplateReader:
    """Answers the endpoints that change nothing."""

    def __init__(self, ledger: TemplateLedger, tools: TemplateTools) -> None:
        self._ledger = ledger
        self._tools = tools

    async def mounted(self, request: Request) -> Reply:
        return await self.by_code(request, request.params["code"])

    async def by_code(self, request: Request, code: str) -> Reply:
        """A template in the shape that push workers read; the channel push is preferred."""
        variants = await self._tools.templates.variants(code, request.reach.tenant_id)
        channel = min(
            (channel for channel, _ in variants), key=lambda channel: (channel != "push", channel), default=""
        )
        existing = [locale for there, locale in variants if there == channel]
        locale = self._spoken(request.header(b"accept-language"), existing)
        template = None
        if locale is not None:
            template = await self._tools.templates.find(code, channel, locale, request.reach.tenant_id)
        if template is None:
            raise Problem("TEMPLATE_NOT_FOUND", f"Template {code} not found")
        return Reply(200, self._code_view(template))

    async def render(self, request: Request) -> Reply:
        body = request.json(RenderBody)
        if body.data is not None and body.variables is not None:
            raise Problem("VALIDATION_ERROR", "give data or variables, not both")
        template = await self._chosen(request, body)
        message = self._tools.render(template, (body.data if body.data is not None else body.variables) or {})
        stored = body.body_template is None
        rendered = Rendered(
            body=message.text,
            subject=message.subject,
            html=message.html,
            channel=template.channel if stored else body.channel,
            locale=template.locale if stored else body.locale,
            version=template.version if stored else None,
            segments=segments_of(message.text) if template.channel == "sms" else None,
        )
        return Reply(200, rendered)

    async def _chosen(self, request: Request, body: RenderBody) -> Template:
        named = [body.template_id, body.template_key, body.body_template]
        if len([one for one in named if one is not None]) != 1:
            raise Problem("VALIDATION_ERROR", "give one of templateId, templateKey and bodyTemplate")
        if body.version is not None and body.template_id is None:
            raise Problem("VALIDATION_ERROR", "a version needs its templateId")
        if body.template_id is not None:
            return await self._by_id(request, body.template_id, body.version)
        if body.template_key is not None:
            return await self._by_key(request, body.template_key, body)
        template = Template(
            code="inline",
            channel=body.channel or "inline",
            locale=body.locale or self._tools.locale.default,
            text=body.body_template or "",
            subject=body.subject_template,
            html=body.html_template,
            default_variables=body.default_variables or {},
        )
        try:
            self._tools.names(template)
        except BadTemplate as error:
            raise Problem("VALIDATION_ERROR", str(error)) from None
        return template

    async def _by_id(self, request: Request, template_id: str, version: int | None) -> Template:
        stored = await self._ledger.template(template_id, version)
        tenant = request.reach.tenant_id
        if stored is None or stored.deleted_at is not None or tenant not in {None, stored.tenant_id or tenant}:
            raise Problem("TEMPLATE_NOT_FOUND", "there is no template with this id")
        return stored.template()

    async def _by_key(self, request: Request, key: str, body: RenderBody) -> Template:
        variants = await self._tools.templates.variants(key, request.reach.tenant_id)
        channels = sorted({channel for channel, _ in variants})
        if body.channel is None and len(channels) > 1:
            raise Problem("CHANNEL_REQUIRED", f"template {key} exists for {', '.join(channels)}: name the channel")
        channel: str = body.channel or "".join(channels)
        existing = [locale for there, locale in variants if there == channel]
        rules = self._tools.locale
        wished = wished_locale(body.locale, None, request.header(b"accept-language"), None, rules.default)
        locale = resolve_locale(wished, existing, rules)
        template = None
        if locale is not None:
            template = await self._tools.templates.find(key, channel, locale, request.reach.tenant_id)
        if template is None:
            raise Problem("TEMPLATE_NOT_FOUND", f"Template {key} not found for locale {wished}")
        return template

    def _spoken(self, header: str | None, existing: Collection[str]) -> str | None:
        """The first language asked for that exists; `en` is also served by `en-US`, and the other way round."""
        default = self._tools.locale.default
        for tag in parse_accept_language(header or "") or [default]:
            language = tag.partition("-")[0]
            kin = sorted(locale for locale in existing if locale.partition("-")[0] == language)
            fitting = [one for one in (tag, language) if one in existing] or (kin if tag == language else [])
            if fitting:
                return default if default in fitting else fitting[0]
        return None if self._tools.locale.on_missing == "error" or default not in existing else default

    def _code_view(self, template: Template) -> CodeView:
        place = f"carillon:{template.code}/{template.channel}/{template.locale}"
        return CodeView(
            # A template from a file has no id of its own, but the same one at every reading.
            id=template.template_id or str(uuid.uuid5(uuid.NAMESPACE_URL, place)),
            code=template.code,
            type=template.channel,
            language=template.locale,
            version=template.version,
            content=PushContent(template.subject, template.text),
            variables=self._tools.names(template),
        )


def is_id(text: str) -> bool:
    """Whether a path names a template by its id, not by its key."""
    return _ID.fullmatch(text) is not None
