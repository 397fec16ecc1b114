"""The parts of billing: two services that call each other with signed requests, and their queues."""

import asyncio
import hmac
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from decimal import Decimal
from enum import StrEnum
from typing import Any

from carillon.blueprints.billing import payment_api, subscription_api, webhooks
from carillon.blueprints.billing.domain import (
    PAYMENT_INITIATION,
    PLAN_CHANGE,
    REFUND_INITIATION,
    SUBSCRIPTION_UPDATE,
    TRIAL_PAYMENT,
    USAGE_SYNC,
)
from carillon.blueprints.billing.gateway import MOCK, Gateway, GatewayRules, MockGateway, installed
from carillon.blueprints.billing.messages import OutgoingRelay, QueueJob
from carillon.blueprints.billing.payment import PaymentRules, Payments
from carillon.blueprints.billing.store import BillingStore
from carillon.blueprints.billing.subscription import Neighbour, SubscriptionLife, Subscriptions
from carillon.blueprints.billing.webhooks import Post, Response, Sign, Verify, Webhooks
from carillon.compose.erasure import ErasuresPart
from carillon.compose.ledger import LedgerPart
from carillon.compose.listener import Listener
from carillon.compose.part import DoctorFinding, Loop, Part, PartEnd, Role
from carillon.compose.process import Process
from carillon.compose.queues import LANES
from carillon.compose.redis import examine_redis
from carillon.config.billing import Billing
from carillon.config.policies import queue_policies
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.pauses import Scope
from carillon.domain.ports import Clock, Observer
from carillon.outbound.shutdown import calls_within
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest
from carillon.providers.tools import Secret
from carillon.providers.webhook.signing import sign_x_webhook, verify_x_webhook
from carillon.queues import Queues
from carillon.system import new_id
from carillon.upkeep.api import pauses as pauses_api
from carillon.upkeep.api import queues as queues_api
from carillon.upkeep.health import Check
from carillon.upkeep.metrics.queues import QueueTally
from carillon.web import Endpoint

_USER_AGENT = "Carillon"
_TOKEN_PURPOSE = b"carillon/billing/service-token"
_KINDS: tuple[Scope, ...] = ("provider", "endpoint", "lane", "template")
_SENSELESS = dict.fromkeys(_KINDS, "this blueprint works off queues; pause a queue or a tenant")


class BillingRole(StrEnum):
    """Which of the two services a process is; both by default."""

    PAYMENT = "payment"
    SUBSCRIPTION = "subscription"


class Neighbours:
    """The address of each service: the one of the settings, else this process."""

    def __init__(self, billing: Billing, services: frozenset[str]) -> None:
        self.own: Callable[[], str] = lambda: ""
        """The address of this process, known once it listens."""
        self._payment = billing.payment_url.rstrip("/")
        self._subscription = billing.subscription_url.rstrip("/")
        if BillingRole.PAYMENT in services:
            _refuse_unknown(BillingRole.SUBSCRIPTION, "SUBSCRIPTION_SERVICE_URL", self._subscription, services)
        if BillingRole.SUBSCRIPTION in services:
            _refuse_unknown(BillingRole.PAYMENT, "PAYMENT_SERVICE_URL", self._payment, services)

    def payment(self) -> str:
        return self._payment or self.own()

    def subscription(self) -> str:
        return self._subscription or self.own()


def _refuse_unknown(service: BillingRole, variable: str, url: str, services: frozenset[str]) -> None:
    if service not in services and not url:
        raise ConfigurationError(f"{variable}: set the address of the {service} service, which is not in this process")


def service_token(billing: Billing) -> str:
    """The token that the services show each other; by default both derive it from the signing secret."""
    return billing.service_token or hmac.digest(billing.signing_secret.encode(), _TOKEN_PURPOSE, "sha256").hex()


def verifier(billing: Billing, clock: Clock) -> Verify:
    secret = Secret(billing.signing_secret)

    def verify(headers: Sequence[tuple[str, str]], body: bytes) -> str:
        return verify_x_webhook(
            [secret], headers, body, now=clock.wall(), tolerance_seconds=billing.tolerance_seconds
        ).value

    return verify


def _signer(billing: Billing) -> Sign:
    secret = Secret(billing.signing_secret)
    return lambda timestamp, body: sign_x_webhook(secret, timestamp, body)


def _poster(http: HttpClient) -> Post:
    async def post(url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Response:
        answer = await http.post(HttpRequest(url=url, body=body, headers=headers, timeout_seconds=seconds))
        if not isinstance(answer, HttpAnswer):
            return Response(None, answer.error)
        return Response(answer.status, "" if answer.ok else answer.excerpt())

    return post


class Building:
    """Builds the two services of one process from what they share."""

    def __init__(
        self,
        settings: Settings,
        billing: Billing,
        store: BillingStore,
        *,
        http: HttpClient,
        relay: OutgoingRelay,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._billing = billing
        self._store = store
        self._post = _poster(http)
        self._relay = relay
        self._clock = clock

    def webhooks(self, where: Callable[[], str], observer: Observer) -> Webhooks:
        return Webhooks(
            self._post,
            _signer(self._billing),
            where,
            clock=self._clock,
            observer=observer,
            user_agent=_USER_AGENT,
        )

    def payments(self, gateway: Gateway, webhooks: Webhooks) -> Payments:
        return Payments(
            self._store,
            gateway,
            self._relay,
            webhooks,
            clock=self._clock,
            ids=new_id,
            rules=PaymentRules(
                webhook_seconds=self._billing.webhook_timeout_seconds,
                immediate_seconds=self._billing.immediate_timeout_seconds,
            ),
        )

    def subscriptions(self, where: Callable[[], str]) -> Subscriptions:
        neighbour = Neighbour(
            post=self._post,
            where=where,
            token=service_token(self._billing),
            seconds=self._billing.payment_timeout_seconds,
        )
        return Subscriptions(self._store, self._relay, neighbour, self._billing.plans, clock=self._clock, ids=new_id)


Handle = Callable[[QueueJob], Coroutine[Any, Any, None]]
Registered = Iterator[tuple[str, str, Handle]]
"""The queue, the action of messages without one, and the handler."""


def parts_of(process: Process) -> Sequence[Part]:
    """The listener stops after the handlers, because a handler may call this process's own listener."""
    settings = process.settings
    location = settings.redis.location()
    if settings.billing is None or location is None:
        raise ConfigurationError("redis.url (REDIS_URL): the queues of the billing services are in Redis")
    services = process.services or frozenset(BillingRole)
    neighbours = Neighbours(settings.billing, services)
    ledger = LedgerPart(process)
    queues = QueuesPart(process, ledger, location, services)
    both = BillingPart(process, settings.billing, ledger, queues=queues, neighbours=neighbours)
    listener = Listener(process, ledger)
    neighbours.own = lambda: listener.own_address
    return [ledger, queues, both, ErasuresPart(process, ledger), listener, WebhooksPart(both), WorkersPart(both)]


class QueuesPart(Part):
    """The list queues in Redis, one client for each service."""

    title = "Redis"

    def __init__(self, process: Process, ledger: LedgerPart, location: str, services: frozenset[str]) -> None:
        self._process = process
        self._ledger = ledger
        self._location = location
        self._services = sorted(services)
        self._tally = QueueTally()
        self.queues: dict[str, Queues] = {}

    async def open(self, stack: AsyncExitStack) -> None:
        self.queues = {service: self._open(service) for service in self._services}
        for each in self.queues.values():
            stack.push_async_callback(each.aclose)
            await each.check()

    def _open(self, service: str) -> Queues:
        settings = self._process.settings
        return Queues(
            self._location,
            ledger=self._ledger.ledger,
            policies=queue_policies(settings.queue, settings.drill.time_scale),
            service=service,
            beat=settings.beat,
            observer=self._process.observe,
            concurrency=settings.work.concurrency,
            batch=settings.work.batch,
            drain_seconds=calls_within(settings.work.drain_seconds),
            allow_unsafe=settings.ledger.allow_unsafe,
        )

    def observers(self) -> Sequence[Observer]:
        return (self._tally,)

    def checks(self) -> Mapping[str, Check]:
        first = next(iter(self.queues.values()))
        return {"redis": first.check}

    def endpoints(self) -> list[Endpoint]:
        found = queues_api.endpoints(list(self.queues.values()), self._ledger.ledger, self._tally)
        first = next(iter(self.queues.values()))
        known = pauses_api.Known(lanes=LANES, queues=self._names, senseless=_SENSELESS)
        return found + pauses_api.endpoints(first.targets, None, self._ledger.ledger, self._process.clock, known)

    def _names(self) -> list[str]:
        """Every queue that the settings name or this process works off."""
        handled = {queue for each in self.queues.values() for queue in each.handlers}
        return sorted(handled | (set(self._process.settings.queue) - {"*"}))

    def pages(self) -> Sequence[str]:
        return ("queues",)

    async def examine(self) -> list[DoctorFinding]:
        return [await examine_redis(self._location, "queues", part="queues")]


class BillingPart(Part):
    """The services, their handlers and their endpoints."""

    title = "Templates"
    webhooks: Webhooks
    relay: OutgoingRelay
    life: SubscriptionLife | None = None

    def __init__(
        self, process: Process, billing: Billing, ledger: LedgerPart, *, queues: QueuesPart, neighbours: Neighbours
    ) -> None:
        self._process = process
        self._billing = billing
        self._ledger = ledger
        self._queues = queues
        self._neighbours = neighbours
        self._endpoints: list[Endpoint] = []

    @property
    def queues(self) -> dict[str, Queues]:
        return self._queues.queues

    async def open(self, stack: AsyncExitStack) -> None:
        process, billing, store = self._process, self._billing, BillingStore(self._ledger.ledger.engine)
        http = HttpClient()
        stack.push_async_callback(http.aclose)
        self.relay = OutgoingRelay(
            store,
            next(iter(self.queues.values())).enqueue,
            clock=process.clock,
            observer=process.observe,
            poll_seconds=billing.outbox_poll_seconds,
        )
        building = Building(process.settings, billing, store, http=http, relay=self.relay, clock=process.clock)
        self.webhooks = building.webhooks(self._neighbours.subscription, process.observe)
        self._endpoints = []
        if BillingRole.PAYMENT in self.queues:
            gateway = _gateway(process)
            stack.push_async_callback(gateway.aclose)
            payments = building.payments(gateway, self.webhooks)
            _register(self.queues[BillingRole.PAYMENT], _payment_handlers(payments))
            self._endpoints += payment_api.endpoints(payments, service_token(billing))
        if BillingRole.SUBSCRIPTION in self.queues:
            subscriptions = building.subscriptions(self._neighbours.payment)
            _register(self.queues[BillingRole.SUBSCRIPTION], _subscription_handlers(subscriptions))
            verify = verifier(billing, process.clock)
            self.life = SubscriptionLife(subscriptions, billing.life.checked(), process.clock, process.observe)
            self._endpoints += subscription_api.endpoints(subscriptions)
            self._endpoints += webhooks.endpoints(store, verify, billing.plans, billing.life, process.observe)

    def endpoints(self) -> list[Endpoint]:
        return self._endpoints

    async def examine(self) -> list[DoctorFinding]:
        found = [DoctorFinding("Templates", "ok", "this blueprint renders no templates")]
        try:
            await _gateway(self._process).aclose()
        except ConfigurationError as error:
            return [*found, DoctorFinding("Gateway", "ill", str(error))]
        kind = self._process.settings.gateway.kind
        return [*found, DoctorFinding("Gateway", "ok", "mock, which moves no money" if kind == MOCK else kind)]


def _gateway(process: Process) -> Gateway:
    gateway = process.settings.gateway
    if gateway.kind != MOCK:
        return installed(gateway.kind, gateway.options, process.clock)
    rules = GatewayRules(
        payments=gateway.payments,
        refunds=gateway.refunds,
        declined=[Decimal(str(amount)) for amount in gateway.declined_amounts],
        delay_seconds=gateway.delay_seconds,
    )
    return MockGateway(rules, process.clock)


class WebhooksPart(Part):
    """Waits for calls under way at the end of the process; they may be calls to its own listener."""

    def __init__(self, both: BillingPart) -> None:
        self._both = both

    async def stop(self, ending: PartEnd) -> None:
        await self._both.webhooks.drain(ending.deadline.left())


class WorkersPart(Part):
    """Runs the handlers of each service's queues, and moves committed messages into the queues."""

    role = Role.OUTBOUND

    def __init__(self, both: BillingPart) -> None:
        self._both = both
        self._stop = asyncio.Event()
        self._begun: list[asyncio.Event] = []

    def run(self) -> Mapping[str, Loop]:
        found: dict[str, Loop] = {"outbox": self._both.relay.run}
        if self._both.life is not None:
            found["subscription_life"] = self._both.life.run
        for service, queues in self._both.queues.items():
            begun = asyncio.Event()
            self._begun.append(begun)
            found[service] = self._work(queues, begun)
        return found

    def _work(self, queues: Queues, begun: asyncio.Event) -> Loop:
        return lambda: queues.run(self._stop, begun.set)

    async def begun(self) -> None:
        await asyncio.gather(*(each.wait() for each in self._begun))

    async def stop(self, ending: PartEnd) -> None:
        self._stop.set()
        await ending.finish(*self._both.queues)


def _register(queues: Queues, handlers: Registered) -> None:
    for queue, action, handle in handlers:
        queues.handler(queue, action=action)(handle)


def _payment_handlers(payments: Payments) -> Registered:
    yield SUBSCRIPTION_UPDATE, "webhook", payments.process_webhook_processing
    yield REFUND_INITIATION, "refund", payments.process_refund_initiation


def _subscription_handlers(subscriptions: Subscriptions) -> Registered:
    yield PAYMENT_INITIATION, "initial", subscriptions.process_payment_initiation
    yield TRIAL_PAYMENT, "trial", subscriptions.process_trial_payment
    yield PLAN_CHANGE, "plan_change", subscriptions.process_plan_change
    yield USAGE_SYNC, "usage_sync", subscriptions.process_usage_sync
