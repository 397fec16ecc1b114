"""The endpoints of the subscription service."""

import re
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from carillon.blueprints.billing.domain import Plan, Subscription, plan_of
from carillon.blueprints.billing.subscription import Subscriptions
from carillon.web import (
    About,
    Answer,
    Callers,
    Endpoint,
    Found,
    Header,
    Owned,
    Problem,
    Reply,
    Request,
    in_body,
    in_query,
)
from carillon.web.problems import rfc3339_ms

_PATH = "/v1/subscriptions"
_EXAMPLE = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_KEY_HEADER = Header("Idempotency-Key", "Names the request: repeated, it does nothing more", r"^[\x21-\x7e]{1,255}$")

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"\A[^\x00-\x1f\x7f]+\Z")]
Tenant = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._:-]{1,64}\Z")]
Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class CreateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who subscribes to what."""

    plan_id: Name | Whole
    user_id: Name | Whole
    trial: bool = False
    tenant_id: Tenant | None = None
    """For operators; everybody else acts for the tenant of the token."""


class PlanBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which plan is wanted."""

    plan_id: Name | Whole
    charge: bool = True
    """False changes the plan without a payment; for administrators."""


class CancelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the subscription ends."""

    at_end: bool = True
    """False ends it at once; the paid period is not refunded."""


class SubscriptionView(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription; `id` and `subscription_id` are the same."""

    id: str
    subscription_id: str
    user_id: str
    plan_id: str
    status: str
    trial: bool
    started_at: str | None
    ends_at: str | None
    cancel_at_end: bool
    created_at: str
    updated_at: str
    tenant_id: str | UnsetType = UNSET


class ChangeRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A message is on its way; the subscription changes when it was carried out."""

    subscription_id: str
    action: str
    message_id: str


class UsageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user."""

    user_id: Name
    tenant_id: Tenant | None = None
    """For operators; everybody else acts for the tenant of the token."""


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """How often a feature was used since the last reset."""

    feature_name: str
    usage_count: int
    reset_at: str | None


class UsageList(msgspec.Struct, frozen=True, kw_only=True):
    """Every feature that the user has used."""

    user_id: str
    usage: list[UsageView]


class _SubscriptionHandlers:
    def __init__(self, subscriptions: Subscriptions) -> None:
        self._subscriptions = subscriptions

    async def create(self, request: Request) -> Reply:
        body = request.json(CreateBody)
        person = request.reach.tenant_id, request.reach.user_id or str(body.user_id)
        plan_id = str(body.plan_id)
        plan = self._plan(plan_id)
        made = await self._subscriptions.create(person, plan_id, plan, trial=body.trial, key=_key(request))
        return Reply(201, _view(made), {"Location": f"{_PATH}/{made.subscription_id}"})

    async def show(self, request: Request) -> Reply:
        return Reply(200, _view(request.found))

    async def renew(self, request: Request) -> Reply:
        found: Subscription = request.found
        self._plan(found.plan_id)
        message_id = await self._subscriptions.renew(found, _key(request))
        answer = ChangeRequested(subscription_id=found.subscription_id, action="renewal", message_id=message_id)
        return Reply(202, answer)

    async def cancel(self, request: Request) -> Reply:
        found: Subscription = request.found
        at_end = request.json(CancelBody).at_end
        return Reply(200, _view(await self._subscriptions.ledger.cancel(found.subscription_id, at_end=at_end)))

    async def plan(self, request: Request) -> Reply:
        found: Subscription = request.found
        body = request.json(PlanBody)
        if not body.charge and not request.caller.administers:
            raise Problem("FORBIDDEN", "only an administrator changes a plan without a payment")
        self._plan(str(body.plan_id))
        action, message_id = await self._subscriptions.ask_for_plan(
            found, str(body.plan_id), charge=body.charge, key=_key(request)
        )
        return Reply(202, ChangeRequested(subscription_id=found.subscription_id, action=action, message_id=message_id))

    async def usage(self, request: Request) -> Reply:
        user_id = request.query(UsageQuery).user_id
        found = await self._subscriptions.ledger.usage_of(request.reach.tenant_id, user_id)
        views = [
            UsageView(feature_name=each.feature_name, usage_count=each.usage_count, reset_at=_time(each.reset_at))
            for each in found
        ]
        return Reply(200, UsageList(user_id=user_id, usage=views))

    async def find(self, subscription_id: str, _tenant_id: str | None) -> Found | None:
        found = await self._subscriptions.ledger.subscription(subscription_id)
        return None if found is None else Found(found, found.tenant_id, found.user_id)

    def _plan(self, plan_id: str) -> Plan:
        plan = plan_of(self._subscriptions.plans, plan_id)
        if plan is None:
            raise Problem("VALIDATION_ERROR", f"there is no plan {plan_id}: see [billing.plans]")
        return plan


def _key(request: Request) -> str | None:
    key = request.header(b"idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise Problem("VALIDATION_ERROR", "Idempotency-Key has 1 to 255 visible characters")
    return key


def _time(unix_ms: float | None) -> str | None:
    return None if unix_ms is None else rfc3339_ms(unix_ms)


def _view(found: Subscription) -> SubscriptionView:
    return SubscriptionView(
        id=found.subscription_id,
        subscription_id=found.subscription_id,
        user_id=found.user_id,
        plan_id=found.plan_id,
        status=found.status,
        trial=found.trial,
        started_at=_time(found.started_at),
        ends_at=_time(found.ends_at),
        cancel_at_end=found.cancel_at_end,
        created_at=rfc3339_ms(found.created_at),
        updated_at=rfc3339_ms(found.updated_at),
        tenant_id=found.tenant_id or UNSET,
    )


def endpoints(subscriptions: Subscriptions) -> list[Endpoint]:
    """Create, show, renew, change the plan, usage."""
    handlers = _SubscriptionHandlers(subscriptions)
    return [*_holding(handlers), *_asking(handlers), _ending(handlers)]


def _one(handlers: _SubscriptionHandlers) -> About:
    missing = "there is no subscription with this id"
    return About(callers=Callers.KNOWN, owned=Owned(param="id", find=handlers.find, missing=missing))


def _holding(handlers: _SubscriptionHandlers) -> list[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path=_PATH,
            call=handlers.create,
            name="createSubscription",
            summary="Subscribe somebody to a plan",
            description="It is pending until its first payment was reported.",
            tag="Billing",
            about=About(callers=Callers.KNOWN, person=(in_body("user_id"),), tenant=in_body("tenant_id")),
            body=CreateBody,
            body_examples={"trial": {"plan_id": "basic", "user_id": "ada", "trial": True}},
            headers=(_KEY_HEADER,),
            answers=(Answer(status=201, description="Pending", kind=SubscriptionView),),
        ),
        Endpoint(
            method="GET",
            path=f"{_PATH}/{{id}}",
            call=handlers.show,
            name="showSubscription",
            summary="Show one subscription",
            tag="Billing",
            about=_one(handlers),
            path_examples={"id": _EXAMPLE},
            answers=(Answer(status=200, description="The subscription", kind=SubscriptionView),),
        ),
        Endpoint(
            method="GET",
            path="/v1/usage",
            call=handlers.usage,
            name="showUsage",
            summary="How often somebody used each feature",
            tag="Billing",
            about=About(callers=Callers.KNOWN, person=(in_query("user_id"),), tenant=in_query("tenant_id")),
            query=UsageQuery,
            answers=(Answer(status=200, description="The counters", kind=UsageList),),
        ),
    ]


def _asking(handlers: _SubscriptionHandlers) -> list[Endpoint]:
    asked = (Answer(status=202, description="The message is on its way", kind=ChangeRequested),)
    return [
        Endpoint(
            method="POST",
            path=f"{_PATH}/{{id}}/renew",
            call=handlers.renew,
            name="renewSubscription",
            summary="Ask for the money of another period",
            tag="Billing",
            headers=(_KEY_HEADER,),
            about=_one(handlers),
            path_examples={"id": _EXAMPLE},
            answers=asked,
            problems=("VALIDATION_ERROR",),
        ),
        Endpoint(
            method="POST",
            path=f"{_PATH}/{{id}}/plan",
            call=handlers.plan,
            name="changePlan",
            summary="Ask for another plan",
            description="Upgrades and downgrades are paid for a whole period of the new plan, which begins at once.",
            tag="Billing",
            body=PlanBody,
            body_examples={"upgrade": {"plan_id": "pro"}},
            headers=(_KEY_HEADER,),
            about=_one(handlers),
            path_examples={"id": _EXAMPLE},
            answers=asked,
        ),
    ]


def _ending(handlers: _SubscriptionHandlers) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"{_PATH}/{{id}}/cancel",
        call=handlers.cancel,
        name="cancelSubscription",
        summary="End a subscription, at the end of its period or at once",
        description="It is not renewed any more. A later payment restores the service.",
        tag="Billing",
        body=CancelBody,
        body_examples={"atItsEnd": {"at_end": True}},
        about=_one(handlers),
        path_examples={"id": _EXAMPLE},
        answers=(Answer(status=200, description="The subscription as it is now", kind=SubscriptionView),),
    )
