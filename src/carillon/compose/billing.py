"""The parts of a process that is the payment service, the subscription service, or both; imported only for billing."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from carillon.blueprints.billing import payment_api, subscription_api, webhook_receiver
from carillon.blueprints.billing.domain import (
    PAYMENT_INITIATION,
    PLAN_CHANGE,
    REFUND_INITIATION,
    SUBSCRIPTION_UPDATE,
    TRIAL_PAYMENT,
    USAGE_SYNC,
)
from carillon.blueprints.billing.payloads import Job
from carillon.blueprints.billing.payment import Payments
from carillon.blueprints.billing.relay import Relay
from carillon.blueprints.billing.store import BillingStore
from carillon.blueprints.billing.subscription import Subscriptions
from carillon.blueprints.billing.webhooks import Webhooks
from carillon.compose.billing_parts import BillingRole, Building, Neighbours, service_token, verifier
from carillon.compose.deadline import calls_within
from carillon.compose.ledger import LedgerPart
from carillon.compose.listener import Listener
from carillon.compose.part import Ending, Finding, Loop, Part, Role
from carillon.compose.process import Process
from carillon.compose.shared_redis import examine_redis
from carillon.config import queues as settings_queues
from carillon.config.billing import Billing
from carillon.domain.errors import ConfigurationError
from carillon.domain.ports import Observer
from carillon.providers.http import HttpClient
from carillon.queues import Queues
from carillon.upkeep.api import queues as queues_api
from carillon.upkeep.health import Check
from carillon.upkeep.metrics.queue_tally import QueueTally
from carillon.web import Endpoint

Handle = Callable[[Job], Coroutine[Any, Any, None]]
Registered = Iterator[tuple[str, str, Handle]]
"""Queue, the action of messages that name none, and the handler."""


def parts_of(process: Process) -> Sequence[Part]:
    """Handlers under way may call this process's own listener: it stops behind them."""
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
    return [ledger, queues, both, listener, WebhooksPart(both), WorkersPart(both)]


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
            policies=settings_queues.policies(settings.queue, settings.drill.time_scale),
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
        return queues_api.endpoints(list(self.queues.values()), self._ledger.ledger, self._tally)

    def pages(self) -> Sequence[str]:
        return ("queues",)

    async def examine(self) -> list[Finding]:
        return [await examine_redis(self._location, "queues")]


class BillingPart(Part):
    """The services, their handlers and their endpoints."""

    title = "Templates"
    webhooks: Webhooks
    relay: Relay

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
        self.relay = Relay(
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
            payments = building.payments(self.webhooks)
            _register(self.queues[BillingRole.PAYMENT], _payment_handlers(payments))
            self._endpoints += payment_api.endpoints(payments, service_token(billing))
        if BillingRole.SUBSCRIPTION in self.queues:
            subscriptions = building.subscriptions(self._neighbours.payment)
            _register(self.queues[BillingRole.SUBSCRIPTION], _subscription_handlers(subscriptions))
            verify = verifier(billing, process.clock)
            self._endpoints += subscription_api.endpoints(subscriptions)
            self._endpoints += webhook_receiver.endpoints(store, verify, billing.plans, process.observe)

    def endpoints(self) -> list[Endpoint]:
        return self._endpoints

    async def examine(self) -> list[Finding]:
        return [Finding("Templates", "ok", "nothing is rendered here")]


class WebhooksPart(Part):
    """The calls that are under way when the process ends; they may be calls to its own listener."""

    def __init__(self, both: BillingPart) -> None:
        self._both = both

    async def stop(self, ending: Ending) -> None:
        await self._both.webhooks.drain(ending.deadline.left())


class WorkersPart(Part):
    """Works off the queues of each service, and brings committed messages to them."""

    role = Role.OUTBOUND

    def __init__(self, both: BillingPart) -> None:
        self._both = both
        self._stop = asyncio.Event()
        self._begun: list[asyncio.Event] = []

    def run(self) -> Mapping[str, Loop]:
        found: dict[str, Loop] = {"outbox": self._both.relay.run}
        for service, queues in self._both.queues.items():
            begun = asyncio.Event()
            self._begun.append(begun)
            found[service] = self._work(queues, begun)
        return found

    def _work(self, queues: Queues, begun: asyncio.Event) -> Loop:
        return lambda: queues.run(self._stop, begun.set)

    async def begun(self) -> None:
        await asyncio.gather(*(each.wait() for each in self._begun))

    async def stop(self, ending: Ending) -> None:
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
