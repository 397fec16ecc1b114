"""Acceptance: an intent is checked, rendered, planned and committed before the caller gets an answer."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from carillon.coalesce import Coalescer
from carillon.domain.addresses import canonical
from carillon.domain.chains import refuse_chain, refuse_silent
from carillon.domain.consent import GATE, Category, refusal, shown
from carillon.domain.content.shown import message_view
from carillon.domain.errors import BadIntent
from carillon.domain.events import IntentAccepted, IntentRepeated
from carillon.domain.explain import Tell
from carillon.domain.intents import Intent, Recipient
from carillon.domain.notifications import (
    Acceptance,
    Accepted,
    Conflict,
    Duplicate,
    Enrolled,
    Enrolment,
    GatedRoute,
    Status,
    Template,
)
from carillon.domain.ports import ClaimOnAccept, Clock, Ids, IntakeLedger, Observer, Signal, Templates
from carillon.domain.suppressions import CLASSIFICATION, SUPPRESSED
from carillon.domain.synchronous import (
    Claimed,
    ClaimedEnrolment,
    NotClaimed,
    Repeated,
    SynchronousEnrolment,
    SynchronousLedger,
)
from carillon.domain.templates import resolve_locale, wished_locale, written_as
from carillon.faultpoint import faultpoint
from carillon.intake.digests import gathered, rendered_as, throttled
from carillon.intake.erased import ErasedAddresses
from carillon.intake.jinja.formats import Person
from carillon.intake.parts import carried, number_shown, refuse_misplaced, refuse_number, refuse_unrendered
from carillon.intake.people import timed
from carillon.intake.plan import Content, PlanRules, plan
from carillon.intake.rendering import rendered
from carillon.intake.telling import tell_gated, tell_skipped

_NOT_HERE = frozenset({"RECIPIENT_UNRESOLVED", "CHANNEL_DISABLED", "COUNTRY_NOT_ALLOWED"})
"""Refusals that concern one channel of a person, and not the others."""
QUEUED_ONLY = frozenset({"inApp"})
"""Channels whose messages people fetch, so that no delivery can be awaited."""


class Contents:
    """Finds address, locale and message of every route; refuses an intent that could not be sent."""

    def __init__(
        self, templates: Templates, rules: PlanRules, clock: Clock, erased: ErasedAddresses | None = None
    ) -> None:
        self._templates = templates
        self._rules = rules
        self._clock = clock
        self._erased = erased

    async def of(self, intent: Intent, tell: Tell | None = None) -> list[Content]:
        """One content for every channel and recipient, the skipped ones among them; raises BadIntent."""
        channels = await self._channels(intent)
        refuse_chain(intent.timing, channels, synchronous=intent.synchronous)
        refuse_silent(intent.timing, channels, self._rules.tells)
        refuse_misplaced(intent, channels)
        if self._rules.supported_locales:
            refuse_unrendered(intent)
        if tell is not None:
            tell("channel", {"channels": channels, "named": bool(intent.channels)})
        found: list[Content] = []
        refusals: dict[str, BadIntent] = {}
        for channel in channels:
            for recipient in intent.recipients:
                try:
                    found.append(await self._content(intent, recipient, channel, tell))
                except BadIntent as error:
                    if intent.timing.until is None or error.code not in _NOT_HERE:
                        raise
                    # Who cannot be reached here may be reached on the next channel of the chain.
                    refusals.setdefault(recipient.ref, error)
                    found.append(self._skipped(intent, recipient, channel, str(error)))
        _refuse_unreachable(found, refusals)
        for channel, reason in intent.skips.items():
            found += [self._skipped(intent, recipient, channel, reason) for recipient in intent.recipients]
        return found

    async def _channels(self, intent: Intent) -> tuple[str, ...]:
        for channel in (*intent.channels, *intent.skips):
            if channel not in self._rules.channels:
                raise BadIntent("UNKNOWN_CHANNEL", f"channel {channel} has no provider here", field="channel")
        if intent.channels or intent.skips:
            return tuple(dict.fromkeys(intent.channels))
        existing = sorted(
            {channel for channel, _ in await self._templates.variants(intent.notification_type, intent.tenant_id)}
        )
        if not existing:
            raise BadIntent("TEMPLATE_NOT_FOUND", f"Template {intent.notification_type} not found", field="templateKey")
        if len(existing) > 1:
            raise BadIntent(
                "CHANNEL_REQUIRED",
                f"template {intent.notification_type} exists for {', '.join(existing)}: name the channel",
                field="channel",
            )
        return (existing[0],)

    async def categorised(self, intent: Intent) -> Intent:
        """The intent with its category: its own, or that of its template; raises BadIntent for an unknown one."""
        named = intent.category
        if named is None:
            named = await self._templates.category(intent.notification_type, intent.tenant_id)
            if named is None:
                return intent
            intent = replace(intent, category=named)
        found = self._rules.categories.find(named, intent.tenant_id)
        if found is None:
            known = ", ".join(sorted(self._rules.categories.of(intent.tenant_id)))
            more = f"; known are {known}" if known else "; no categories are configured: add [categories.NAME]"
            raise BadIntent("UNKNOWN_CATEGORY", f"there is no category {named}{more}", field="category")
        return replace(intent, urgent=True) if found.urgent else intent

    async def _content(self, intent: Intent, recipient: Recipient, channel: str, tell: Tell | None) -> Content:
        reason = recipient.unreachable.get(channel)
        if reason is not None:
            return self._skipped(intent, recipient, channel, reason)
        category = self._category(intent)
        if category is None and channel in recipient.refused:
            raise BadIntent("CHANNEL_DISABLED", f"{recipient.ref} has switched {channel} off", field="channel")
        given = _address(recipient, channel, tell)
        held = self._erased
        address = canonical(channel, given) if held is None else await held.spelled(channel, given, intent.tenant_id)
        if tell is not None:
            more = number_shown(address) if channel == "sms" else {}
            tell("recipient", {"recipient": recipient.ref, "channel": channel, "address": address, **more})
        if channel == "sms":
            refuse_number(address, intent.tenant_id, self._rules.carry.phones)
        refused = None
        if category is not None:
            refused = refusal(category, channel, recipient.chosen, recipient.refused)
            if tell is not None:
                tell(GATE, shown(category, refused))
        gate = None if refused is None else GATE
        # An erased address is named as such even if the category holds it too: it is never evaluated again.
        if held is not None and await held.hold(channel, given, intent.tenant_id):
            refused, gate = SUPPRESSED, CLASSIFICATION
        if self._rules.supported_locales:
            locale = self._downstream_locale(intent, recipient)
            return Content(recipient.ref, channel, address, locale, skipped_because=refused, skipped_by=gate)
        template = await self._template(intent, recipient, channel, tell)
        # What a gate skips is rendered too: an error of the sender does not hide behind it, and it can be redriven.
        person = self._person(intent, recipient, template)
        message = await rendered(template, intent.payload, self._rules.missing_variable, person)
        message = carried(message, template, intent, address, self._rules.carry)
        if tell is not None:
            tell("render", {"subject": message.subject, **msgspec.to_builtins(message_view(channel, message))})
        return Content(recipient.ref, channel, address, template.locale, message, refused, gate)

    def _category(self, intent: Intent) -> Category | None:
        return None if intent.category is None else self._rules.categories.find(intent.category, intent.tenant_id)

    async def _template(self, intent: Intent, recipient: Recipient, channel: str, tell: Tell | None) -> Template:
        code = intent.notification_type
        wished = self._wished(intent, recipient)
        variants = await self._templates.variants(code, intent.tenant_id)
        existing = [locale for there, locale in variants if there == channel]
        locale = resolve_locale(wished, existing, self._rules.locale)
        if tell is not None:
            tell("locale", {"wished": wished, "resolved": locale, "available": existing})
        template = None if locale is None else await self._templates.find(code, channel, locale, intent.tenant_id)
        if template is None:
            elsewhere = sorted({there for there, _ in variants} - {channel}) if not existing else []
            lacking = f"channel {channel}; it exists for {', '.join(elsewhere)}" if elsewhere else f"locale {wished}"
            raise BadIntent("TEMPLATE_NOT_FOUND", f"Template {code} not found for {lacking}", field="templateKey")
        if tell is not None:
            tell("template", {"templateKey": code, "locale": locale, "version": template.version})
        return template

    def _skipped(self, intent: Intent, recipient: Recipient, channel: str, reason: str) -> Content:
        locale = self._downstream_locale(intent, recipient) if self._rules.supported_locales else None
        return Content(recipient.ref, channel, recipient.addresses.get(channel), locale, skipped_because=reason)

    def _downstream_locale(self, intent: Intent, recipient: Recipient) -> str | None:
        return resolve_locale(self._wished(intent, recipient), self._rules.supported_locales, self._rules.locale)

    def _person(self, intent: Intent, recipient: Recipient, template: Template) -> Person:
        zone = recipient.time_zone or self._rules.tenant_zones.get(intent.tenant_id or "") or self._rules.zone
        return Person(written_as(self._wished(intent, recipient), template.locale), zone, self._clock.wall())

    def _wished(self, intent: Intent, recipient: Recipient) -> str:
        tenant = self._rules.tenant_locales.get(intent.tenant_id or "")
        return wished_locale(
            intent.locale, recipient.locale, intent.accept_language, tenant, self._rules.locale.default
        )


def _refuse_unreachable(found: Sequence[Content], refusals: Mapping[str, BadIntent]) -> None:
    """Raise the first refusal of a person whom no channel of the chain can reach."""
    for recipient_ref, error in refusals.items():
        theirs = [content for content in found if content.recipient_ref == recipient_ref]
        if all(content.skipped_because is not None and content.skipped_by is None for content in theirs):
            raise error


def _address(recipient: Recipient, channel: str, tell: Tell | None) -> str:
    if tell is not None:
        tell("preferences", {"channel": channel, "preferredLocale": recipient.locale})
    address = recipient.addresses.get(channel) or recipient.addresses.get("*")
    if not address:
        raise BadIntent("RECIPIENT_UNRESOLVED", f"no {channel} address is known for {recipient.ref}", field="recipient")
    return address


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
        clock: Clock,
        add_preferences: Callable[[Intent], Awaitable[Intent]] | None = None,
        erased: ErasedAddresses | None = None,
        claim_on_accept: ClaimOnAccept | None = None,
        max_batch: int = 500,
        max_pending: int = 10_000,
    ) -> None:
        self._contents = Contents(templates, rules, clock, erased)
        self._signal = signal
        self._rules = rules
        self._observe = observer
        self._ids = ids
        self._clock = clock
        self._add_preferences = add_preferences
        self._ledger = ledger
        self._claim_on_accept = claim_on_accept
        self._enrolments: Coalescer[Enrolment, Enrolled] = Coalescer(
            self._enrol, max_batch=max_batch, max_pending=max_pending
        )

    async def accept(self, intent: Intent) -> Acceptance:
        """Store the intent; returns after the commit. If it raises, nothing was stored."""
        enrolment = await self.planned(intent)
        enrolled = await self._enrolments.add(enrolment)
        faultpoint("after_accept_commit")
        return self._answer(intent, enrolment, enrolled)

    async def planned(self, intent: Intent, tell: Tell | None = None) -> Enrolment:
        """The rows to write; raises BadIntent if the intent cannot be sent. Calls `tell` for every gate it passes."""
        intent = await self._contents.categorised(intent)
        if self._add_preferences is not None:
            intent = await self._add_preferences(intent)
        intent = timed(intent, tell)
        contents, now = await self._contents.of(rendered_as(intent), tell), self._clock.wall()
        planned = plan(intent, contents, intent.notification_id or self._ids(), self._rules, now)
        return throttled(
            intent, gathered(intent, planned, self._rules, self._ids, now, tell=tell), self._rules, self._ids, now
        )

    async def drain(self) -> None:
        """Wait for the writes in flight."""
        await self._enrolments.drain()

    async def _enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        """Write a batch; an idle worker claims it in the same commit, otherwise the signal wakes a worker."""
        taken = None if self._claim_on_accept is None else await self._claim_on_accept(batch)
        if taken is not None:
            return taken
        answers = await self._ledger.enrol(batch)
        if any(isinstance(answer, Accepted) for answer in answers):
            self._signal.ring()
        return answers

    def _answer(self, intent: Intent, enrolment: Enrolment, enrolled: Enrolled) -> Acceptance:
        told = {"notification_id": enrolled.notification_id, **named(intent)}
        match enrolled:
            case Accepted():
                self._observe(IntentAccepted(routes=len(enrolment.routes), **told))
                tell_skipped(self._observe, intent, enrolled)
                gated = tell_gated(self._observe, intent, enrolled, enrolment)
                return self._acceptance(enrolment, enrolled, enrolment.routes[0].lane, gated)
            case Duplicate():
                self._observe(IntentRepeated(outcome="duplicate", **told))
                return self._acceptance(enrolment, enrolled, enrolled.lane, enrolled.gated)
            case Conflict():
                self._observe(IntentRepeated(outcome="conflict", **told))
                raise key_conflict()
            case _:
                assert_never(enrolled)

    def _acceptance(
        self, enrolment: Enrolment, enrolled: Accepted | Duplicate, lane: int, gated: tuple[GatedRoute, ...]
    ) -> Acceptance:
        suppressed = enrolled.suppressed
        stopped = len(suppressed) + len(gated)
        # A route of a person who cannot be reached is skipped without a gate, and says nothing about the others.
        reachable = [one for one in enrolment.routes if one.status is Status.PENDING or one.skipped_by is not None]
        return Acceptance(
            enrolled.notification_id,
            self._rules.lanes.by_rank(lane).queue_name,
            isinstance(enrolled, Duplicate),
            suppressed,
            bool(stopped) and stopped >= len(reachable),
            gated,
        )


def key_conflict() -> BadIntent:
    """The error for an idempotency key that was used for another request."""
    return BadIntent(
        "IDEMPOTENCY_CONFLICT", "this idempotency key was used for a different request", field="Idempotency-Key"
    )


def named(intent: Intent) -> dict[str, Any]:
    """The fields by which operators find the events of an intent."""
    return {
        "notification_type": intent.notification_type,
        "producer": intent.producer,
        "audience_kind": intent.audience_kind,
        "idempotency_key": intent.idempotency_key,
        "request_id": intent.request_id,
        "trace_id": intent.trace_id,
    }


class SynchronousIntake:
    """Enrols and claims for callers who wait; requests that arrive together share a commit, apart from queued ones."""

    def __init__(
        self,
        intake: Intake,
        ledger: SynchronousLedger,
        observer: Observer,
        *,
        owner: str,
        seconds: float,
        max_batch: int = 200,
        max_pending: int = 1000,
    ) -> None:
        self._intake = intake
        self._ledger = ledger
        self._observe = observer
        self._owner = owner
        self._seconds = seconds
        self._enrolments: Coalescer[Enrolment, ClaimedEnrolment] = Coalescer(
            self._write, max_batch=max_batch, max_pending=max_pending
        )

    async def enrol(self, intent: Intent) -> SynchronousEnrolment:
        enrolment = await self._intake.planned(intent)
        refuse_queued_only(enrolment)
        return self._answer(intent, enrolment, await self._enrolments.add(enrolment))

    async def _write(self, batch: Sequence[Enrolment]) -> list[ClaimedEnrolment]:
        return await self._ledger.enrol_claimed(batch, self._owner, self._seconds)

    def _answer(self, intent: Intent, enrolment: Enrolment, held: ClaimedEnrolment) -> SynchronousEnrolment:
        enrolled = held.enrolled
        told = {"notification_id": enrolled.notification_id, **named(intent)}
        match enrolled:
            case Accepted():
                self._observe(IntentAccepted(routes=1, **told))
                tell_skipped(self._observe, intent, enrolled)
                gated = tell_gated(self._observe, intent, enrolled, enrolment)
                if not held.claims:
                    reason = gated[0].because if gated else SUPPRESSED
                    return NotClaimed(enrolled.notification_id, reason, enrolled.suppressed, gated)
                return Claimed(held.claims[0])
            case Duplicate():
                self._observe(IntentRepeated(outcome="duplicate", **told))
                return Repeated(enrolled.notification_id)
            case Conflict():
                self._observe(IntentRepeated(outcome="conflict", **told))
                raise key_conflict()
            case _:
                assert_never(enrolled)


def refuse_queued_only(enrolment: Enrolment) -> None:
    """Refuse a channel that is never synchronous, and several channels."""
    if len(enrolment.routes) > 1:
        raise BadIntent("SYNCHRONOUS_UNAVAILABLE", "a synchronous request has one channel", field="channels")
    channel = enrolment.routes[0].channel
    if channel in QUEUED_ONLY:
        raise BadIntent("SYNCHRONOUS_UNAVAILABLE", f"{channel} is never synchronous", field="synchronous")
