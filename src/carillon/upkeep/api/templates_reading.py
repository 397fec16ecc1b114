"""The template endpoints that only read: rendered with values, or by code for push workers."""

import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from carillon.domain.consent import NO_CATEGORIES, Categories
from carillon.domain.content.sms import segments_of
from carillon.domain.errors import BadTemplate
from carillon.domain.notifications import Message, Template
from carillon.domain.ports import Templates
from carillon.domain.templates import (
    Draft,
    LocaleRules,
    TemplateLedger,
    parse_accept_language,
    resolve_locale,
    unfit_parts,
    warnings,
    wished_locale,
)
from carillon.upkeep.api.preferences import is_zone
from carillon.upkeep.api.templates_wire import CodeView, PushContent, RenderBody, Rendered, TemplateChange
from carillon.web import Problem, Reply, Request
from carillon.web.problems import Detail, detail, members

FIELDS = {"subject": "subjectTemplate", "text": "bodyTemplate", "html": "htmlTemplate", "mjml": "mjml"}
"""The field of each part of a template."""
_CHANGES = {
    "body_template": "body",
    "subject_template": "subject",
    "html_template": "html",
    "mjml": "mjml",
    "engine": "engine",
    "kind": "kind",
    "layout": "layout",
    "sample": "sample",
    "name": "name",
    "description": "description",
    "default_variables": "default_variables",
    "category": "category",
    "is_active": "is_active",
}
"""The ledger's name of each field of a change."""
_EMPTY: dict[str, Any] = {"default_variables": {}, "sample": {}, "body": ""}
"""What a field that is given as null becomes."""
INLINE = "inline"
"""The channel and the key of a template that is written in the request and names none."""


class SeenBy(msgspec.Struct, frozen=True):
    """For whom a preview is rendered: what a send would know of a person whom nobody knows."""

    locale: str
    """The one that was asked for."""
    tenant_id: str | None = None
    zone: str | None = None


class TemplateTools(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of intake that the template endpoints use."""

    templates: Templates
    names: Callable[[Template], list[str]]
    """The variables of a template that is ready."""
    ready: Callable[[Template, str | None], Awaitable[Template]]
    """The template of a tenant, ready to be rendered; raises BadTemplate for one that should not be kept."""
    render: Callable[[Template, Mapping[str, Any], SeenBy], Awaitable[Message]]
    """Raises BadIntent naming what is missing."""
    refusal: Callable[[Template, Message], str | None]
    """Why a rendered message would be refused for its length."""
    plain: Callable[[Template], bool]
    """Whether substitution alone renders the template."""
    changed: Callable[[], None]
    """Must be called after every write."""
    locale: LocaleRules = LocaleRules()
    tenant_locales: dict[str, str] = {}
    """The default locales of tenants with their own."""
    categories: Categories = NO_CATEGORIES


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
        if body.time_zone is not None and not is_zone(body.time_zone):
            raise Problem("VALIDATION_ERROR", "timeZone is not known", details=[Detail("not known", "timeZone")])
        template, tenant = await self._chosen(request, body)
        data = body.data if body.data is not None else body.variables
        seen = SeenBy(self._wished(request, body, tenant), tenant, body.time_zone)
        message = await self._tools.render(template, template.sample if data is None else data, seen)
        stored = not _is_written(body)
        refusal = self._tools.refusal(template, message)
        rendered = Rendered(
            body=message.text,
            text=message.text,
            warnings=[*warnings(template, message), *([] if refusal is None else [f"it would be refused: {refusal}"])],
            subject=message.subject,
            html=message.html,
            channel=template.channel if stored else body.channel,
            locale=template.locale if stored else body.locale,
            version=template.version if stored else None,
            segments=segments_of(message.text) if template.channel == "sms" else None,
            push=message.push,
            in_app=message.in_app,
            sample=template.sample if data is None and stored else None,
        )
        return Reply(200, rendered)

    async def _chosen(self, request: Request, body: RenderBody) -> tuple[Template, str | None]:
        """The template, ready to be rendered, and the tenant to whose people it goes."""
        tenant = request.reach.tenant_id
        written = _is_written(body)
        # A key and a channel beside a text say where the text will be: the operator's rules are those of the key.
        keyed = body.template_key is not None and not (written and body.channel is not None)
        if (body.template_id is not None) + keyed + written != 1:
            raise Problem("VALIDATION_ERROR", "give one of templateId, templateKey and bodyTemplate")
        if body.version is not None and body.template_id is None:
            raise Problem("VALIDATION_ERROR", "a version needs its templateId")
        if body.template_id is not None:
            return await self._by_id(tenant, body.template_id, body.version)
        if body.template_key is not None and not written:
            return await self._by_key(request, body.template_key, body), tenant
        template = Template(
            code=body.template_key or INLINE,
            channel=body.channel or INLINE,
            locale=body.locale or self._tools.locale.default,
            text=body.body_template or "",
            subject=body.subject_template,
            html=body.html_template,
            mjml=body.mjml,
            layout=body.layout,
            engine=body.engine or "jinja",
            default_variables=body.default_variables or {},
            fields=fields_given(body.channel, body.push, body.in_app),
        )
        return await ready(self._tools, template, tenant), tenant

    async def _by_id(self, tenant: str | None, template_id: str, version: int | None) -> tuple[Template, str | None]:
        stored = await self._ledger.template(template_id, version)
        if stored is None or stored.deleted_at is not None or tenant not in {None, stored.tenant_id or tenant}:
            raise Problem("TEMPLATE_NOT_FOUND", "there is no template with this id")
        whose = stored.tenant_id or tenant
        return await ready(self._tools, stored.template(), whose), whose

    async def _by_key(self, request: Request, key: str, body: RenderBody) -> Template:
        variants = await self._tools.templates.variants(key, request.reach.tenant_id)
        channels = sorted({channel for channel, _ in variants})
        if body.channel is None and len(channels) > 1:
            raise Problem("CHANNEL_REQUIRED", f"template {key} exists for {', '.join(channels)}: name the channel")
        channel: str = body.channel or "".join(channels)
        existing = [locale for there, locale in variants if there == channel]
        wished = self._wished(request, body, request.reach.tenant_id)
        locale = resolve_locale(wished, existing, self._tools.locale)
        template = None
        if locale is not None:
            template = await self._tools.templates.find(key, channel, locale, request.reach.tenant_id)
        if template is None:
            raise Problem("TEMPLATE_NOT_FOUND", f"Template {key} not found for locale {wished}")
        return template

    def _wished(self, request: Request, body: RenderBody, tenant: str | None) -> str:
        return wished(self._tools, request, body.locale, tenant)

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
            engine=UNSET if self._tools.plain(template) else template.engine,
            push=template.fields if template.channel == "push" and template.fields else UNSET,
            default_variables=template.default_variables or UNSET,
        )


def wished(tools: TemplateTools, request: Request, locale: str | None, tenant: str | None) -> str:
    """The locale of a person whom nobody knows: the one that was asked for, else the tenant's."""
    theirs, asked = tools.tenant_locales.get(tenant or ""), request.header(b"accept-language")
    return wished_locale(locale, None, asked, theirs, tools.locale.default)


def _is_written(body: RenderBody) -> bool:
    return any(one is not None for one in (body.body_template, body.html_template, body.mjml))


async def ready(tools: TemplateTools, template: Template, tenant_id: str | None) -> Template:
    """A template ready to be rendered; its error names the field, the line and the column."""
    wrong = unfit_parts(Draft.of(template)) if template.channel != INLINE else None
    if wrong is not None:
        raise Problem("VALIDATION_ERROR", wrong[1], details=[Detail(wrong[1], FIELDS.get(wrong[0], wrong[0]))])
    try:
        return await tools.ready(template, tenant_id)
    except BadTemplate as error:
        field = "bodyTemplate" if error.place is None else FIELDS.get(error.place.part, error.place.part)
        if template.engine == "simple":
            # Without a place: a line of a text without tags helps nobody.
            said = f"{field}: {error.message}"
            raise Problem("VALIDATION_ERROR", said, details=[Detail(error.message, field)]) from None
        details = [detail(error.message, field, error.place)]
        raise Problem("VALIDATION_ERROR", f"{field}: {error}", details=details, members=members(error.place)) from None


def fields_given(channel: str | None, push: dict[str, Any] | None, in_app: dict[str, Any] | None) -> dict[str, Any]:
    """What a template of the channel carries beside its texts; refuses what belongs to another channel."""
    for name, given in (("push", push), ("inApp", in_app)):
        if given and channel != name:
            said = f"{name}: only a template of the channel {name} has it"
            raise Problem("VALIDATION_ERROR", said, details=[Detail(said, name)])
    return push or in_app or {}


def changes_given(body: TemplateChange, channel: str) -> dict[str, Any]:
    """What the next version says otherwise, under the names of the ledger."""
    given = {ours: getattr(body, theirs) for theirs, ours in _CHANGES.items()}
    changes = {name: value for name, value in given.items() if value is not UNSET}
    if body.push is not UNSET or body.in_app is not UNSET:
        changes["fields"] = fields_given(channel, body.push or None, body.in_app or None)
    for name, empty in _EMPTY.items():
        if changes.get(name, empty) is None:
            changes[name] = empty
    # A template has one source of its HTML.
    for one, other in (("mjml", "html"), ("html", "mjml")):
        if changes.get(one) is not None:
            changes.setdefault(other, None)
    return changes
