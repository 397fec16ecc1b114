"""Acceptance: an intent is checked, rendered, planned and written down before anybody is told that it was."""

from typing import Any, assert_never

from carillon.coalesce import Coalescer
from carillon.domain.errors import BadIntent
from carillon.domain.events import IntentAccepted, IntentRepeated
from carillon.domain.intents import Intent, Recipient
from carillon.domain.locale import resolve_locale, wished_locale
from carillon.domain.notifications import Acceptance, Accepted, Conflict, Duplicate, Enrolled, Enrolment
from carillon.domain.ports import Ids, IntakeLedger, Observer, Signal, Templates
from carillon.faultpoint import faultpoint
from carillon.intake.plan import Content, PlanRules, plan
from carillon.intake.render import render_message


class Intake:
    """Accepts intents; requests that arrive together share one commit."""

    def __init__(
        self,
        *,
        ledger: IntakeLedger,
        templates: Templates,
        signal: Signal,
        rules: PlanRules,
        observer: Observer,
        ids: Ids,
        max_batch: int = 500,
        max_pending: int = 10_000,
    ) -> None:
        self._templates = templates
        self._signal = signal
        self._rules = rules
        self._observe = observer
        self._ids = ids
        self._enrolments: Coalescer[Enrolment, Enrolled] = Coalescer(
            ledger.enrol, max_batch=max_batch, max_pending=max_pending
        )

    async def accept(self, intent: Intent) -> Acceptance:
        """Write the intent down; returns after the commit, or raises and nothing was stored."""
        contents = [
            await self._content(intent, recipient, channel)
            for channel in await self._channels(intent)
            for recipient in intent.recipients
        ]
        enrolment = plan(intent, contents, intent.notification_id or self._ids(), self._rules)
        enrolled = await self._enrolments.add(enrolment)
        faultpoint("after_accept_commit")
        return self._answer(intent, enrolment, enrolled)

    async def drain(self) -> None:
        """Wait for what is being written now."""
        await self._enrolments.drain()

    async def _channels(self, intent: Intent) -> tuple[str, ...]:
        for channel in intent.channels:
            if channel not in self._rules.channels:
                raise BadIntent("UNKNOWN_CHANNEL", f"channel {channel} has no provider here", field="channel")
        if intent.channels:
            return tuple(dict.fromkeys(intent.channels))
        existing = sorted({channel for channel, _ in await self._templates.variants(intent.notification_type)})
        if not existing:
            raise BadIntent("TEMPLATE_NOT_FOUND", f"Template {intent.notification_type} not found", field="templateKey")
        if len(existing) > 1:
            raise BadIntent(
                "CHANNEL_REQUIRED",
                f"template {intent.notification_type} exists for {', '.join(existing)}: say which channel",
                field="channel",
            )
        return (existing[0],)

    async def _content(self, intent: Intent, recipient: Recipient, channel: str) -> Content:
        address = recipient.addresses.get(channel) or recipient.addresses.get("*")
        if not address:
            raise BadIntent(
                "RECIPIENT_UNRESOLVED", f"no {channel} address is known for {recipient.ref}", field="recipient"
            )
        code = intent.notification_type
        wished = self._wished(intent, recipient)
        existing = [locale for there, locale in await self._templates.variants(code) if there == channel]
        locale = resolve_locale(wished, existing, self._rules.locale)
        template = None if locale is None else await self._templates.find(code, channel, locale)
        if locale is None or template is None:
            raise BadIntent("TEMPLATE_NOT_FOUND", f"Template {code} not found for locale {wished}", field="templateKey")
        message = render_message(template, intent.payload, self._rules.missing_variable)
        return Content(recipient.ref, channel, address, locale, message)

    def _wished(self, intent: Intent, recipient: Recipient) -> str:
        tenant = self._rules.tenant_locales.get(intent.tenant_id or "")
        return wished_locale(
            intent.locale, recipient.locale, intent.accept_language, tenant, self._rules.locale.default
        )

    def _answer(self, intent: Intent, enrolment: Enrolment, enrolled: Enrolled) -> Acceptance:
        told = {"notification_id": enrolled.notification_id, **_named(intent)}
        match enrolled:
            case Accepted():
                self._signal.ring()
                self._observe(IntentAccepted(routes=len(enrolment.routes), **told))
                return Acceptance(enrolled.notification_id, self._queue(enrolment.routes[0].lane))
            case Duplicate():
                self._observe(IntentRepeated(outcome="duplicate", **told))
                return Acceptance(enrolled.notification_id, self._queue(enrolled.lane), replayed=True)
            case Conflict():
                self._observe(IntentRepeated(outcome="conflict", **told))
                raise BadIntent(
                    "IDEMPOTENCY_CONFLICT",
                    "this idempotency key was used for a different request",
                    field="Idempotency-Key",
                )
            case _:
                assert_never(enrolled)

    def _queue(self, lane: int) -> str:
        return self._rules.lanes.by_rank(lane).queue_name


def _named(intent: Intent) -> dict[str, Any]:
    """What every event of an intent is recognised by."""
    return {
        "notification_type": intent.notification_type,
        "producer": intent.producer,
        "audience_kind": intent.audience_kind,
        "idempotency_key": intent.idempotency_key,
        "request_id": intent.request_id,
        "trace_id": intent.trace_id,
    }
