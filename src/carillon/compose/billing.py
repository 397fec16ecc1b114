"""A process that is the payment service, the subscription service, or both; imported only where it is asked for."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

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
from carillon.compose import console, surface, trust
from carillon.compose.billing_parts import BillingRole, Building, Neighbours, service_token, verifier
from carillon.compose.deadline import Deadline, calls_within
from carillon.compose.fleet import Fleet
from carillon.compose.parts import open_ledger
from carillon.compose.telemetry import Telemetry
from carillon.config import queues as settings_queues
from carillon.config.billing import Billing
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.ending import ended
from carillon.ledger.opening import Ledger
from carillon.outbound.watchdog import Watchdog
from carillon.providers.http import HttpClient
from carillon.queues import Queues
from carillon.system import SystemClock
from carillon.upkeep import health
from carillon.upkeep.api import queues as queues_api
from carillon.upkeep.health import Check
from carillon.upkeep.metrics.queue_tally import QueueTally
from carillon.web import Endpoint, Server
from carillon.web.limits import is_loopback

Handle = Callable[[Job], Coroutine[Any, Any, None]]
Registered = Iterator[tuple[str, str, Handle]]
"""Queue, the action of messages that name none, and who handles them."""


class BillingProgram:
    """A composed billing process: queues, ledger, gateway, webhooks, HTTP."""

    surface = "services"

    def __init__(self, settings: Settings, roles: frozenset[BillingRole], *, share_port: bool = False) -> None:
        location = settings.redis.location()
        if settings.billing is None or location is None:
            raise ConfigurationError("redis.url (REDIS_URL): the queues of the billing services are in Redis")
        trust.refuse_open_door(settings)
        self._settings = settings
        self._billing: Billing = settings.billing
        self._location = location
        self._roles = roles
        self._share_port = share_port
        self._neighbours = Neighbours(self._billing, roles)
        self._clock = SystemClock()
        self._observe = Telemetry(settings)
        self._readiness = health.Readiness()
        self._deadline: Deadline | None = None
        """Once the word to stop has come."""

    async def run(self, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
        """Open everything, say so, work until told to stop, drain, close."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._observe.end)
            opened = await self._open(stack)
            await self._serve(opened, stack)
            _keep(stack, opened.relay.run())
            _keep(stack, Watchdog(2 * self._settings.ledger.lease_seconds).run())
            working = await self._work(opened.queues, stop, stack)
            self._readiness.ready = True
            ready(self._neighbours.own)
            await _first(asyncio.create_task(stop.wait()), *working)
            self._readiness.ready = False
            deadline = self._deadline = Deadline(self._clock, self._settings.work.drain_seconds, opened.ledger)
            stop.set()
            # The handlers under way may be calling this very listener: it closes behind them.
            await asyncio.gather(*working)
            await opened.webhooks.drain(deadline.left())

    async def _open(self, stack: AsyncExitStack) -> "_Opened":
        ledger = await open_ledger(self._settings)
        stack.push_async_callback(ledger.aclose)
        await ledger.migrate()
        http = HttpClient()
        stack.push_async_callback(http.aclose)
        queues = {role: self._queues(role, ledger) for role in sorted(self._roles)}
        for each in queues.values():
            stack.push_async_callback(each.aclose)
        store = BillingStore(ledger.engine)
        relay = Relay(
            store,
            next(iter(queues.values())).enqueue,
            clock=self._clock,
            observer=self._observe,
            poll_seconds=self._billing.outbox_poll_seconds,
        )
        building = Building(self._settings, self._billing, store, http=http, relay=relay, clock=self._clock)
        webhooks = building.webhooks(self._neighbours.subscription, self._observe)
        endpoints: list[Endpoint] = []
        if BillingRole.PAYMENT in queues:
            payments = building.payments(webhooks)
            _register(queues[BillingRole.PAYMENT], _payment_handlers(payments))
            endpoints += payment_api.endpoints(payments, service_token(self._billing))
        if BillingRole.SUBSCRIPTION in queues:
            subscriptions = building.subscriptions(self._neighbours.payment)
            _register(queues[BillingRole.SUBSCRIPTION], _subscription_handlers(subscriptions))
            verify = verifier(self._billing, self._clock)
            endpoints += subscription_api.endpoints(subscriptions)
            endpoints += webhook_receiver.endpoints(store, verify, self._billing.plans, self._observe)
        tally = QueueTally()
        self._observe.also(tally)
        endpoints += queues_api.endpoints(list(queues.values()), ledger, tally)
        endpoints += console.of_queues(self._settings, ledger, self._observe.series, self._clock)
        return _Opened(ledger, list(queues.values()), relay, webhooks, endpoints)

    def _queues(self, role: BillingRole, ledger: Ledger) -> Queues:
        return Queues(
            self._location,
            ledger=ledger,
            policies=settings_queues.policies(self._settings.queue, self._settings.drill.time_scale),
            service=role.value,
            beat=self._settings.beat,
            observer=self._observe,
            concurrency=self._settings.work.concurrency,
            batch=self._settings.work.batch,
            drain_seconds=calls_within(self._settings.work.drain_seconds),
            allow_unsafe=self._settings.ledger.allow_unsafe,
        )

    async def _work(
        self, queues: list[Queues], stop: asyncio.Event, stack: AsyncExitStack
    ) -> list["asyncio.Task[None]"]:
        started = [asyncio.Event() for _ in queues]
        working = [_keep(stack, each.run(stop, begun.set)) for each, begun in zip(queues, started, strict=True)]
        all_of_them = asyncio.gather(*(each.wait() for each in started))
        try:
            await _first(all_of_them, *working)
        finally:
            # What is waited for no more must not complain at the end.
            all_of_them.cancel()
            await asyncio.gather(all_of_them, return_exceptions=True)
        return working

    async def _serve(self, opened: "_Opened", stack: AsyncExitStack) -> None:
        fleet = Fleet(self._location)
        stack.push_async_callback(fleet.aclose)
        checks: dict[str, Check] = {"ledger": opened.ledger.check, "redis": fleet.check}
        web = trust.web_settings(self._settings, opened.ledger, None, self._observe)
        application = surface.application(opened.endpoints, self._readiness, checks, web)
        server = Server(application, surface.server_settings(self._settings, share_port=self._share_port))
        await server.start()
        stack.push_async_callback(self._stop_serving, server)
        host = self._settings.http.host
        reached = host if is_loopback(host) else "127.0.0.1"
        self._neighbours.own = f"http://{f'[{reached}]' if ':' in reached else reached}:{server.port}"

    async def _stop_serving(self, server: Server) -> None:
        drain_seconds = self._settings.work.drain_seconds
        await server.stop(drain_seconds if self._deadline is None else self._deadline.left())


class _Opened(NamedTuple):
    ledger: Ledger
    queues: list[Queues]
    relay: Relay
    webhooks: Webhooks
    endpoints: list[Endpoint]


def _keep(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    task = asyncio.create_task(work)

    stack.push_async_callback(ended, task)
    return task


async def _first(*awaited: "asyncio.Future[Any]") -> None:
    """Until one of them ends; what it raised is raised here."""
    done, _ = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
    for each in done:
        await each


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
