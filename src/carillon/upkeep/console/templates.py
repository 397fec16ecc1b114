"""The catalogue of templates: everything there is by key and channel, from files and stored, and what is missing."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from carillon.domain.notifications import Template
from carillon.domain.templates import StoredTemplate, TemplateLedger, gaps
from carillon.upkeep.api.templates_reading import TemplateTools
from carillon.web import ADMINISTRATORS, Answer, Endpoint, Reply, Request
from carillon.web.problems import rfc3339_ms

MOST = 2000
"""How many stored templates are shown; operators with more search by key."""

Filed = Mapping[tuple[str, str, str], Template]
"""Templates of folders by key, channel and locale."""
Key = tuple[str, str, str]
"""A tenant, empty for templates of all tenants, a template's key and its channel."""


class VariantView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A template in one language, as it is used now."""

    locale: str
    id: str | None
    """None where it comes from a folder."""
    version: int
    is_active: bool
    subject_template: str | None
    body_template: str
    html_template: str | None
    mjml: str | None
    engine: str
    kind: str
    layout: str | None
    push: dict[str, Any] | None
    in_app: dict[str, Any] | None
    """What a push or a message of the inbox carries beside its texts, with tags."""
    sample: dict[str, Any]
    default_variables: dict[str, Any]
    variables: list[str]
    category: str | None
    name: str | None
    description: str | None
    updated_at: str | None
    updated_by: str | None


class TemplateEntry(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One key on one channel, in every language it has."""

    template_key: str
    channel: str
    tenant_id: str | None
    variants: list[VariantView]
    gaps: list[str]
    """Supported locales it lacks."""


class Catalogue(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Every template, by key and channel."""

    items: list[TemplateEntry]
    supported: list[str]
    default_locale: str
    categories: list[str]
    """Those that a template of the caller may name."""
    truncated: bool


class CatalogueReader:
    """Reads the templates of folders and of the ledger together."""

    def __init__(
        self, ledger: TemplateLedger, filed: Callable[[], Filed], tools: TemplateTools, supported: Iterable[str]
    ) -> None:
        self._ledger = ledger
        self._filed = filed
        self._tools = tools
        self._supported = list(supported)

    async def catalogue(self, request: Request) -> Reply:
        stored, total = await self._ledger.list_templates(request.reach.filters(), MOST, 0)
        found: dict[Key, dict[str, VariantView]] = {}
        for (code, channel, locale), template in self._filed().items():
            found.setdefault(("", code, channel), {})[locale] = self._view(template, None)
        for one in stored:
            key = (one.tenant_id or "", one.template_key, one.channel)
            variants = found.setdefault(key, {})
            # A stored template that is switched off leaves the one of the folder in use.
            if one.is_active or one.locale not in variants:
                variants[one.locale] = self._view(one.template(), one)
        missing = self._missing(found)
        items = [
            TemplateEntry(
                template_key=key,
                channel=channel,
                tenant_id=owner or None,
                variants=[variants[locale] for locale in sorted(variants)],
                gaps=missing.get((owner, key, channel), []),
            )
            for (owner, key, channel), variants in sorted(found.items(), key=lambda entry: (*entry[0][1:], entry[0][0]))
        ]
        default = self._tools.locale.default
        answer = Catalogue(
            items=items,
            supported=self._supported,
            default_locale=default,
            categories=sorted(self._tools.categories.of(request.reach.tenant_id)),
            truncated=total > len(stored),
        )
        return Reply(200, answer)

    def _missing(self, found: Mapping[Key, Mapping[str, VariantView]]) -> dict[Key, list[str]]:
        existing = [
            (owner or None, key, channel, locale)
            for (owner, key, channel), variants in found.items()
            for locale, variant in variants.items()
            # A layout and a partial are found in any language; a catalogue is its language.
            if variant.is_active and variant.kind == "message"
        ]
        missing: dict[Key, list[str]] = {}
        for gap in gaps(existing, self._supported):
            missing.setdefault((gap.tenant_id, gap.template_key, gap.channel), []).append(gap.locale)
        return missing

    def _view(self, template: Template, stored: StoredTemplate | None) -> VariantView:
        return VariantView(
            locale=template.locale,
            id=None if stored is None else stored.template_id,
            version=template.version,
            is_active=stored is None or stored.is_active,
            subject_template=template.subject,
            body_template=template.text,
            html_template=template.html,
            mjml=template.mjml,
            engine=template.engine,
            kind=template.kind,
            layout=template.layout,
            push=template.fields if template.channel == "push" and template.fields else None,
            in_app=template.fields if template.channel == "inApp" and template.fields else None,
            sample=template.sample,
            default_variables=template.default_variables,
            variables=self._tools.names(template),
            category=template.category,
            name=None if stored is None else stored.name,
            description=None if stored is None else stored.description,
            updated_at=None if stored is None else rfc3339_ms(stored.updated_at),
            updated_by=None if stored is None else stored.created_by,
        )


def endpoints(reader: CatalogueReader) -> list[Endpoint]:
    """The catalogue: which templates exist, and which languages they lack."""
    return [
        Endpoint(
            method="GET",
            path="/api/v1/console/templates",
            call=reader.catalogue,
            name="consoleTemplates",
            summary="Every template by key and channel, from folders and stored, with the languages it lacks",
            tag="Console",
            about=ADMINISTRATORS,
            answers=(Answer(status=200, description="The catalogue.", kind=Catalogue),),
        )
    ]
