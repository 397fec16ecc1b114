"""A test of a template: what is written, published or not, goes to its author through the real provider."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from carillon.domain.addresses import reference, unfit
from carillon.domain.intents import Intent, Recipient
from carillon.domain.notifications import Template
from carillon.domain.ports import Acceptor
from carillon.domain.templates import EngineName, resolve_locale, written_as
from carillon.upkeep.api.notifications_wire import ChannelWord
from carillon.upkeep.api.templates_reading import TemplateTools, fields_given, ready, wished
from carillon.upkeep.api.templates_wire import (
    Body,
    Html,
    InAppFields,
    Locale,
    Mjml,
    PushFields,
    Subject,
    TemplateKey,
    TenantId,
)
from carillon.web import About, Answer, Callers, Endpoint, Problem, Reply, Request, in_body
from carillon.web.problems import Detail

ORIGIN = "template-test"
"""The origin of tests, by which a list of notifications tells them from real ones."""

Accepts = Callable[[Template], Acceptor]
"""An acceptor that knows this template only, published or not."""


class TrialBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """What is written in the editor, the values, and the address of the person who wants to see it."""

    template_key: TemplateKey
    channel: ChannelWord
    recipient: Annotated[str, Meta(min_length=1, max_length=2048, description="An address of the channel.")]
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
    data: dict[str, Any] | None = None
    tenant_id: Annotated[TenantId, Meta(description="Whose layouts and brand it uses.")] | None = None


class TrialSent(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The notification that carries the test; `skipped` if a suppression of the address keeps it back."""

    notification_id: str
    status: Literal["queued", "skipped"]


class TrialSender:
    """Sends what is written in the editor."""

    def __init__(self, accepts: Accepts, tools: TemplateTools) -> None:
        self._accepts = accepts
        self._tools = tools

    async def send(self, request: Request) -> Reply:
        body = request.json(TrialBody)
        wanted = unfit(body.channel, body.recipient)
        if wanted is not None:
            said = f"recipient must be {wanted} for {body.channel}"
            raise Problem("VALIDATION_ERROR", said, details=[Detail(said, "recipient")])
        tenant = request.reach.tenant_id
        draft = await ready(self._tools, self._template(body), tenant)
        accepted = await self._accepts(draft).accept(self._intent(request, body, draft))
        answer = TrialSent(notification_id=accepted.notification_id, status="skipped" if accepted.skipped else "queued")
        return Reply(202, answer, {"Location": f"/api/v1/notifications/{accepted.notification_id}"})

    def _template(self, body: TrialBody) -> Template:
        if body.body_template is None and body.html_template is None and body.mjml is None:
            raise Problem("VALIDATION_ERROR", "give bodyTemplate, htmlTemplate or mjml")
        return Template(
            code=body.template_key,
            channel=body.channel,
            locale=body.locale or self._tools.locale.default,
            text=body.body_template or "",
            subject=body.subject_template,
            html=body.html_template,
            mjml=body.mjml,
            layout=body.layout,
            engine=body.engine or "jinja",
            fields=fields_given(body.channel, body.push, body.in_app),
            default_variables=body.default_variables or {},
        )

    def _spoken(self, request: Request, body: TrialBody, draft: Template) -> str:
        """The locale of days and amounts, as in a preview: the region that is asked for, or the tenant's."""
        asked = wished(self._tools, request, body.locale, request.reach.tenant_id)
        spoken = written_as(asked, draft.locale)
        return spoken if resolve_locale(spoken, [draft.locale], self._tools.locale) is not None else draft.locale

    def _intent(self, request: Request, body: TrialBody, draft: Template) -> Intent:
        tenant = request.reach.tenant_id
        data = body.data or {}
        inbox = body.channel == "inApp"
        return Intent(
            notification_type=body.template_key,
            producer=f"{tenant}/{ORIGIN}" if tenant else ORIGIN,
            recipients=(
                Recipient(
                    ref=f"user:{body.recipient}" if inbox else reference(body.channel, body.recipient),
                    user_id=body.recipient if inbox else None,
                    addresses={body.channel: body.recipient},
                ),
            ),
            channels=(body.channel,),
            payload=data,
            content={"templateKey": body.template_key, "channel": body.channel, "data": data},
            origin=ORIGIN,
            tenant_id=tenant,
            locale=self._spoken(request, body, draft),
            metadata={"test": "true", "by": request.caller.actor},
            urgent=True,
        )


def endpoints(accepts: Accepts, tools: TemplateTools) -> list[Endpoint]:
    """The endpoint behind "Send it to me"."""
    return [
        Endpoint(
            method="POST",
            path="/api/v1/templates/test-send",
            call=TrialSender(accepts, tools).send,
            name="testSendTemplate",
            summary="Send a template that need not be published to yourself",
            description="The message is accepted, sent and shown as every other one, with the origin "
            f"`{ORIGIN}`. Categories and quiet hours are not asked; suppressions are, and channels that the person has "
            "switched off.",
            body=TrialBody,
            body_examples={
                "draft": {
                    "templateKey": "welcome",
                    "channel": "email",
                    "recipient": "ada@example.org",
                    "subjectTemplate": "Hello {{ name }}",
                    "bodyTemplate": "Hello {{ name }}!",
                    "data": {"name": "Ada"},
                }
            },
            answers=(Answer(status=202, description="It is on its way", kind=TrialSent),),
            problems=("TEMPLATE_RENDER_ERROR", "UNKNOWN_CHANNEL", "UNAVAILABLE"),
            tag="Templates",
            about=About(callers=Callers.ADMINISTRATORS, tenant=in_body("tenantId")),
        )
    ]
