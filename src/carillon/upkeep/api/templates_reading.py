"""Templates as those read them who do not keep them: rendered with values, or by code for push workers."""

import re
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from carillon.domain.errors import BadTemplate
from carillon.domain.locale import LocaleRules, parse_accept_language, resolve_locale, wished_locale
from carillon.domain.notifications import Message, Template
from carillon.domain.ports import Templates
from carillon.domain.templates import TemplateLedger
from carillon.upkeep.api.templates_wire import CodeView, PushContent, RenderBody, Rendered
from carillon.web import Problem, Reply, Request

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class TemplateTools(msgspec.Struct, frozen=True, kw_only=True):
    """What the rooms that accept and render lend to this one."""

    templates: Templates
    variables: Callable[[str], Collection[str]]
    """The names a text asks for, as they come; raises BadTemplate."""
    check: Callable[[str], None]
    """Raises BadTemplate for a text that should not be kept."""
    render: Callable[[Template, Mapping[str, Any]], Message]
    """Raises BadIntent naming what is missing."""
    changed: Callable[[], None]
    """Must be called after every write."""
    locale: LocaleRules = LocaleRules()

    def names(self, template: Template) -> list[str]:
        """Every variable of a template once, as they come."""
        parts = (template.subject or "", template.text, template.html or "")
        return list(dict.fromkeys(name for part in parts for name in self.variables(part)))


class Reading:
    """The endpoints that change nothing."""

    def __init__(self, ledger: TemplateLedger, tools: TemplateTools) -> None:
        self._ledger = ledger
        self._tools = tools

    async def mounted(self, request: Request) -> Reply:
        return await self.by_code(request, request.params["code"])

    async def by_code(self, request: Request, code: str) -> Reply:
        """A template in the shape push workers read; push goes before every other channel."""
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
            raise Problem("CHANNEL_REQUIRED", f"template {key} exists for {', '.join(channels)}: say which channel")
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
