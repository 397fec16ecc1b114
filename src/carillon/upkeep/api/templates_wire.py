"""The JSON of templates."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.domain.consent import NAME
from carillon.domain.content.parts import InAppParts, PushParts
from carillon.domain.content.sms import Segments
from carillon.domain.templates import (
    KEY,
    LOCALE,
    LONGEST_BODY,
    LONGEST_HTML,
    LONGEST_KEY,
    LONGEST_SUBJECT,
    EngineName,
    Kind,
    StoredTemplate,
)
from carillon.upkeep.api.notifications_wire import ChannelWord
from carillon.web.paging import Cursor, CursorShape
from carillon.web.problems import rfc3339_ms

TemplateKey = Annotated[str, Meta(pattern=KEY, min_length=1, max_length=LONGEST_KEY, examples=["order_confirmed"])]
Locale = Annotated[str, Meta(pattern=LOCALE, examples=["en-US"])]
Subject = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=LONGEST_SUBJECT)]
Body = Annotated[str, Meta(min_length=1, max_length=LONGEST_BODY)]
Html = Annotated[str, Meta(min_length=1, max_length=LONGEST_HTML, description="The rich part of an email.")]
Mjml = Annotated[str, Meta(min_length=1, max_length=LONGEST_HTML, description="The HTML of an email as MJML.")]
Name = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=200)]
Description = Annotated[str, Meta(max_length=2000)]
PushFields = Annotated[
    dict[str, Any],
    Meta(
        description="What a push carries beside its texts, as in a request's `push`; texts may have tags, and a number "
        "may be a text with a tag. A field that becomes empty is left out.",
        examples=[{"image": "{{ order.picture }}", "actionUrl": "https://shop.example/orders/{{ order.number }}"}],
    ),
]
InAppFields = Annotated[
    dict[str, Any],
    Meta(
        description="The same for a message of the inbox, as in a request's `inApp`.",
        examples=[{"url": "/orders/{{ order.number }}", "actions": [{"label": "Track", "url": "{{ track }}"}]}],
    ),
]
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
    body_template: Annotated[Body, Meta(description="May be left out where there is HTML or MJML.")] | None = None
    subject_template: Subject | None = None
    html_template: Html | None = None
    mjml: Mjml | None = None
    engine: Annotated[EngineName, Meta(description="jinja for a new template; otherwise what it was.")] | None = None
    kind: Kind = "message"
    layout: Annotated[TemplateKey, Meta(description="The key of the layout around it.")] | None = None
    sample: Annotated[dict[str, Any], Meta(description="Values for previews.")] | None = None
    push: PushFields | None = None
    in_app: InAppFields | None = None
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
    body_template: Body | UnsetType | None = UNSET
    subject_template: Subject | UnsetType | None = UNSET
    html_template: Html | UnsetType | None = UNSET
    mjml: Mjml | UnsetType | None = UNSET
    engine: EngineName | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    layout: TemplateKey | UnsetType | None = UNSET
    sample: dict[str, Any] | UnsetType | None = UNSET
    push: PushFields | UnsetType | None = UNSET
    in_app: InAppFields | UnsetType | None = UNSET
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
    """A stored template by its id or its key, or one that is written here, and the values.

    What is written may name the key and the channel it is for: then the operator's rules for that key hold.
    """

    template_id: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    version: Version | None = None
    template_key: TemplateKey | None = None
    channel: ChannelWord | None = None
    locale: Locale | None = None
    body_template: Body | None = None
    subject_template: Subject | None = None
    html_template: Html | None = None
    mjml: Mjml | None = None
    engine: EngineName | None = None
    layout: TemplateKey | None = None
    push: PushFields | None = None
    in_app: InAppFields | None = None
    default_variables: dict[str, Any] | None = None
    time_zone: Annotated[str, Meta(max_length=64, examples=["Europe/Berlin"])] | None = None
    data: dict[str, Any] | None = None
    variables: Annotated[dict[str, Any], Meta(description="Another name for data.")] | None = None
    tenant_id: Annotated[TenantId, Meta(description="Whose layouts, partials and brand it uses.")] | None = None


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
    mjml: str | None
    engine: str
    kind: str
    layout: str | None
    sample: dict[str, Any]
    push: dict[str, Any] | None
    in_app: dict[str, Any] | None
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
    total_count: int | None
    """None behind a cursor: only pages are counted."""
    page_number: int | None
    page_size: int
    total_pages: int | None
    next_cursor: str | None
    """Goes on after the last item; None at the end."""


class TemplateHistory(msgspec.Struct, frozen=True):
    """Every version of one template, newest first."""

    items: list[TemplateView]


class Rendered(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a person would get."""

    body: str
    text: str
    """The same as `body`."""
    warnings: list[str]
    """What is no error and yet worth a look."""
    subject: str | None = None
    html: str | None = None
    channel: str | None = None
    locale: str | None = None
    version: int | None = None
    segments: Segments | None = None
    """The parts in which a carrier sends and charges it; only of a text message."""
    push: PushParts | None = None
    """Only of a push whose template has fields beside its texts."""
    in_app: InAppParts | None = None
    """The same of a message of the inbox."""
    sample: dict[str, Any] | None = None
    """The template's own values for previews, where the request gives none."""


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
    engine: str | UnsetType = UNSET
    """`jinja` if substitution alone cannot render it."""
    push: PushFields | UnsetType = UNSET
    """What the push carries beside its texts, with tags; only where the template says something."""
    default_variables: dict[str, Any] | UnsetType = UNSET
    """For variables that a message leaves out; only where the template has some."""


LISTED = CursorShape(
    "templates",
    {name: (name, str) for name in ("after_key", "after_channel", "after_locale", "after_tenant")},
)


class TemplateQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which templates to list."""

    page_number: Annotated[int, Meta(ge=1, le=10_000)] = 1
    page_size: Annotated[int, Meta(ge=1, le=100)] = 20
    cursor: Cursor | UnsetType = UNSET
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
        mjml=stored.mjml,
        engine=stored.engine,
        kind=stored.kind,
        layout=stored.layout,
        sample=stored.sample,
        push=stored.fields if stored.channel == "push" and stored.fields else None,
        in_app=stored.fields if stored.channel == "inApp" and stored.fields else None,
        default_variables=stored.default_variables,
        variables=variables,
        category=stored.category,
        is_active=stored.is_active,
        version=stored.version,
        created_by=stored.created_by,
        created_at=rfc3339_ms(stored.created_at),
        updated_at=rfc3339_ms(stored.updated_at),
    )


def is_id(text: str) -> bool:
    """Whether a path names a template by its id, not by its key."""
    return _ID.fullmatch(text) is not None


def ordering(stored: StoredTemplate) -> dict[str, str]:
    """What a list is ordered by, under the names of the ledger's filters."""
    said = {"key": stored.template_key, "channel": stored.channel, "locale": stored.locale}
    return {f"after_{name}": value for name, value in {**said, "tenant": stored.tenant_id or ""}.items()}
