"""Plans an intent: the notification and the routes that will be stored."""

from typing import Literal

import msgspec

from carillon.domain.chains import chained
from carillon.domain.consent import NO_CATEGORIES, Categories
from carillon.domain.groups import Groups
from carillon.domain.intents import Intent, canonical, fingerprint, fingerprint_around
from carillon.domain.lanes import Lanes
from carillon.domain.notifications import EVERYBODY, Collapse, Enrolment, Message, Notification, Route, Status
from carillon.domain.people import quiet_until
from carillon.domain.policy import PolicyTable
from carillon.domain.templates import LocaleRules
from carillon.intake.parts import CarryRules

_BY_TENANT = Groups()
_LONG = 400


class PlanRules(msgspec.Struct, frozen=True, kw_only=True):
    """A blueprint's rules for planning."""

    channels: dict[str, tuple[str, ...]]
    """The providers of each channel, in the order of failover."""
    policies: PolicyTable
    lanes: Lanes
    locale: LocaleRules = LocaleRules()
    tenant_locales: dict[str, str] = {}
    zone: str = "UTC"
    """The time zone of people whose own is not known."""
    tenant_zones: dict[str, str] = {}
    missing_variable: Literal["error", "empty", "keep"] = "error"
    idempotency_ttl_seconds: float = 2_592_000.0
    supported_locales: tuple[str, ...] = ()
    """The locales of a renderer downstream; without any, messages are rendered before they are queued."""
    categories: Categories = NO_CATEGORIES
    carry: CarryRules = CarryRules()
    tells: dict[str, frozenset[str]] | None = None
    """For each channel, the goals that its providers can report; None asks nobody."""
    deadlines: dict[str, float] = {}
    """For each provider whose delivery reports are awaited, how many seconds; `explain` shows them."""
    gathers: bool = True
    """Whether the ledger has digests."""
    groups: dict[str, Groups] = {}
    """How the routes of each provider form groups; by tenant where nothing is said."""


class Content(msgspec.Struct, frozen=True):
    """The address, locale and message of one recipient on one channel."""

    recipient_ref: str
    channel: str
    address: str | None
    locale: str | None
    message: Message | None = None
    """None if the message is rendered downstream, or never."""
    skipped_because: str | None = None
    skipped_by: str | None = None
    """The gate that skips it; None if the person cannot be reached."""


def plan(intent: Intent, contents: list[Content], notification_id: str, rules: PlanRules, now: float) -> Enrolment:
    """Choose lane, policy, budget and first provider of every route; `now` is in Unix seconds."""
    name = rules.lanes.name_for(intent.priority, bulk=intent.bulk, synchronous=intent.synchronous)
    lane = rules.lanes.by_name[name]
    routes: list[Route] = []
    for content in contents:
        policy = rules.policies.name_for(intent.origin, content.channel)
        provider = rules.channels[content.channel][0]
        groups = rules.groups.get(provider, _BY_TENANT)
        routes.append(
            Route(
                route_id=f"{content.channel}:{content.recipient_ref}",
                channel=content.channel,
                recipient_ref=content.recipient_ref,
                lane=lane.rank,
                provider=provider,
                policy=policy,
                # A synchronous request gets one attempt, independent of the policy.
                max_attempts=1 if intent.synchronous else rules.policies.max_attempts(policy, lane),
                status=Status.PENDING if content.skipped_because is None else Status.SKIPPED,
                skipped_because=content.skipped_because,
                skipped_by=content.skipped_by,
                address=content.address,
                resolved_locale=content.locale,
                message_json=None if content.message is None else msgspec.json.encode(content.message).decode(),
                group=groups.number(intent.tenant_id, content.recipient_ref, content.address),
            )
        )
    notification = _notification(intent, notification_id, rules, now)
    return Enrolment(notification, _in_chains(intent, notification, routes, now), _collapse(intent))


def _in_chains(intent: Intent, notification: Notification, routes: list[Route], now: float) -> tuple[Route, ...]:
    """The routes, each person's one behind the other if the intent asks for that."""
    people = {one.ref: one for one in intent.recipients}

    def quiet(recipient_ref: str, moment: float) -> float | None:
        hours = people[recipient_ref].quiet_hours
        return None if hours is None else quiet_until(hours, moment)

    scheduled = notification.scheduled_for_ms
    starts = now if scheduled is None else max(now, scheduled / 1000)
    return chained(_held(intent, routes), intent.timing, starts, quiet)


def _held(intent: Intent, routes: list[Route]) -> list[Route]:
    """The routes with the end of the quiet hours that move the notification, which their stories name."""
    ends = intent.timing.quiet_until_ms
    return routes if ends is None else [msgspec.structs.replace(one, not_before_ms=ends) for one in routes]


def _collapse(intent: Intent) -> Collapse | None:
    """The key under which it replaces another: the same recipients, from any sender and on any channel."""
    if intent.timing.collapse_key is None:
        return None
    refs = sorted({recipient.ref for recipient in intent.recipients})
    return Collapse(intent.timing.collapse_key, refs[0] if len(refs) == 1 else f"{EVERYBODY}{fingerprint(refs)}")


def _notification(intent: Intent, notification_id: str, rules: PlanRules, now: float) -> Notification:
    user_ids = [recipient.user_id for recipient in intent.recipients if recipient.user_id is not None]
    payload = canonical(intent.payload)
    # The data are most of a request: they are written once, for the row and for the fingerprint.
    same = len(payload) > _LONG and intent.content.get("data") is intent.payload
    content = fingerprint_around(intent.content, "data", payload) if same else fingerprint(intent.content)
    return Notification(
        notification_id=notification_id,
        notification_type=intent.notification_type,
        producer=intent.producer,
        audience_kind=intent.audience_kind,
        payload_json=payload,
        request_fingerprint=content,
        priority=int(intent.priority),
        origin=intent.origin,
        tenant_id=intent.tenant_id,
        sent_by=intent.sent_by,
        user_id=user_ids[0] if len(user_ids) == 1 else None if user_ids else intent.asked_by,
        recipient_user_ids=user_ids or None,
        idempotency_key=intent.idempotency_key,
        idempotency_ttl_seconds=None if intent.idempotency_key is None else rules.idempotency_ttl_seconds,
        request_id=intent.request_id,
        trace_id=intent.trace_id,
        metadata_json=canonical(intent.metadata) if intent.metadata else None,
        is_bulk=intent.bulk,
        occurred_at_ms=intent.occurred_at_ms,
        scheduled_for_ms=intent.scheduled_for_ms,
        expires_at_ms=intent.timing.expiry(now),
        category=intent.category,
    )
