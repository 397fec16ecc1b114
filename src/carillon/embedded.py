"""Carillon inside any asyncio program: the same engine, as durable, without a process or a port of its own."""

import asyncio
import os
import time
from collections.abc import Awaitable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from carillon.border import fault
from carillon.client import Accepted, Explanation, Item, Notification, Rejected, SkippedRoute, WaitingCount
from carillon.client.wire import waiting_body
from carillon.compose import Ledger, Program
from carillon.compose.from_settings import categories
from carillon.compose.intake import IntakePart
from carillon.compose.ledger import LedgerPart
from carillon.compose.providers import ProvidersPart
from carillon.compose.receipts import receipt_rules
from carillon.config.reading import load
from carillon.domain.errors import BadIntent, CarillonError
from carillon.domain.intents import Intent
from carillon.doors.http.wire import Context, SendBody, reach_named, skipped_routes, to_intent
from carillon.providers.sandbox import Sandbox
from carillon.system import new_id
from carillon.upkeep.api.notifications_wire import notification_view
from carillon.upkeep.api.preferences import change_of, said_in_python
from carillon.upkeep.api.receipts import ReceiptBody, receipt_of
from carillon.upkeep.api.waiting import WaitingSelection, WaitingTimes, cancel_waiting, change_waiting
from carillon.web import Problem
from carillon.web.request import convert

POLL_SECONDS = 0.05
EMBEDDED = "embedded"
"""The actor in the audit trail."""
Selected = TypeVar("Selected", bound=WaitingSelection)


class Embedded:
    """The result of `carillon.open`; use it with `async with`."""

    def __init__(self, where: str, *, config: Path | None, blueprint: str | None, environ: Mapping[str, str]) -> None:
        url = where if "://" in where else f"sqlite:///{Path(where).absolute()}"
        self._settings = load(blueprint, config, {**environ, "DATABASE_URL": url})
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._program: Program | None = None

    async def __aenter__(self) -> Self:
        ready = asyncio.Event()
        self._program = Program(self._settings, embedded=True)
        self._running = asyncio.create_task(self._program.run(self._stop, lambda _address: ready.set()))
        begun = asyncio.create_task(ready.wait())
        await asyncio.wait({self._running, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if self._running.done():
            self._running.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let calls in flight finish; waiting routes stay in the ledger for the next start."""
        self._stop.set()
        if self._running is not None:
            await self._running

    @property
    def program(self) -> Program:
        """The engine itself."""
        if self._program is None:
            raise CarillonError("it is not open; write `async with carillon.open(...) as c`")
        return self._program

    @property
    def _ledger(self) -> Ledger:
        return self.program.part(LedgerPart).ledger

    async def send(self, template_key: str, /, **about: Any) -> Accepted:  # noqa: ANN401 - fields of Item
        """Return once the notification is stored; raises Rejected if it can never be accepted."""
        return await self.send_item(Item(template_key=template_key, **about))

    async def send_item(self, item: Item) -> Accepted:
        """The same for an Item."""
        try:
            acceptance = await self.program.part(IntakePart).intake.accept(_intent(item))
        except BadIntent as error:
            raise Rejected(400, error.code, str(error), {"field": error.field}) from None
        return Accepted(
            notification_id=acceptance.notification_id,
            status="skipped" if acceptance.skipped else "queued",
            queue_name=acceptance.queue_name,
            replayed=acceptance.replayed,
            skipped=msgspec.convert(
                msgspec.to_builtins(skipped_routes(acceptance.suppressed, acceptance.gated)), list[SkippedRoute]
            ),
        )

    async def explain(self, template_key: str, /, **about: Any) -> Explanation:  # noqa: ANN401 - fields of Item
        """What would happen to the notification, gate by gate; nothing is sent."""
        try:
            intent = _intent(Item(template_key=template_key, **about))
        except BadIntent as error:
            raise Rejected(400, error.code, str(error), {"field": error.field}) from None
        return await self.program.part(IntakePart).explainer().explain(intent, {"mode": "queued"})

    async def cancel(self, notification_id: str) -> int:
        """Cancel the routes that no worker has claimed; returns their number."""
        return await self._ledger.cancel(notification_id)

    async def cancel_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """As carillon.client.Client.cancel_waiting."""
        body = _said(WaitingSelection, {**selected, "dry_run": dry_run})
        return await _checked(cancel_waiting(self._ledger, body, EMBEDDED))

    async def change_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """As carillon.client.Client.change_waiting."""
        body = _said(WaitingTimes, {**selected, "dry_run": dry_run})
        return await _checked(change_waiting(self._ledger, body, time.time(), EMBEDDED))

    async def get(self, notification_id: str) -> Notification | None:
        """The notification as it stands now, with every attempt."""
        story = await self._ledger.story(notification_id, None)
        return None if story is None else self._seen(story)

    async def wait(self, notification_id: str, timeout_seconds: float = 30.0) -> Notification:
        """Wait until the notification is finished; raises TimeoutError after `timeout_seconds`."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                found = await self.get(notification_id)
                if found is not None and found.finished:
                    return found
                await asyncio.sleep(POLL_SECONDS)

    async def report(self, notification_id: str, kind: str, **about: str) -> str:
        """Report that a person got, read or acknowledged a message, by `channel` or `route_id`; returns the effect."""
        story = await self._ledger.story(notification_id, None)
        if story is None:
            raise Rejected(404, "NOT_FOUND", "there is no notification with this id", {})
        try:
            body = msgspec.convert({"kind": kind, **{_camel(name): word for name, word in about.items()}}, ReceiptBody)
            receipt = receipt_of(story, body, None)
        except msgspec.ValidationError as error:
            wrong = fault(error, ReceiptBody)
            raise Rejected(400, "VALIDATION_ERROR", wrong.sentence, {"field": wrong.field}) from None
        except Problem as problem:
            raise Rejected(409, problem.code, str(problem), {}) from None
        rules = receipt_rules(self._settings, self.program.part(LedgerPart).chains)
        (taken,) = await self._ledger.take_receipts([receipt], rules)
        return str(taken.effect)

    async def prefer(self, user_id: str, tenant_id: str | None = None, **wishes: Any) -> None:  # noqa: ANN401 - fields
        """Change a person's preferences; `wishes` are the fields of PreferenceChange; raises Rejected."""
        replace = bool(wishes.pop("replace", False))
        known = categories(self._settings).of(tenant_id)
        try:
            change = change_of(
                said_in_python(wishes), known, tuple(self._settings.preferences.holidays), replace=replace
            )
        except Problem as problem:
            raise _rejected(problem) from None
        await self._ledger.change_preferences(tenant_id, user_id, change)

    async def hasten(self, seconds: float) -> int:
        """Make waiting routes due earlier by so many seconds; for tests and drills."""
        return await self._ledger.hasten(seconds)

    async def due(self) -> int:
        """How many routes are due or under way."""
        counts = await self._ledger.counts()
        return int(counts["due"]) + int(counts["leased"])

    @property
    def sandboxes(self) -> list[Sandbox]:
        """The sandbox providers, which keep what they would have sent."""
        return list(self.program.part(ProvidersPart).sandboxes.values())

    def _seen(self, story: Any) -> Notification:  # noqa: ANN401 - a ledger's rows
        view = notification_view(story, {"attempts"}, strict=self._settings.strict_receipts)
        return msgspec.convert(msgspec.to_builtins(view), Notification)


def _intent(item: Item) -> Intent:
    """What an item asks for; raises Rejected and BadIntent."""
    if item.synchronous:
        said = "an embedded Carillon is never synchronous: await wait() after the send"
        raise Rejected(400, "SYNCHRONOUS_UNAVAILABLE", said, {"field": "synchronous"})
    try:
        body = msgspec.convert(msgspec.to_builtins(msgspec.structs.replace(item, idempotency_key=None)), SendBody)
    except msgspec.ValidationError as error:
        wrong = fault(error, SendBody)
        raise Rejected(400, "VALIDATION_ERROR", wrong.sentence, {"field": wrong.field}) from None
    context = Context(
        reach=reach_named(body),
        correlation_id=new_id(),
        idempotency_key=item.idempotency_key,
        trace_id=None,
        accept_language=None,
    )
    return to_intent(body, context)


def _said(kind: type[Selected], selected: Mapping[str, Any]) -> Selected:
    """A selection of what waits, as the API reads it; raises Rejected."""
    try:
        return convert(msgspec.to_builtins(waiting_body(selected)), kind)
    except Problem as problem:
        raise _rejected(problem) from None


async def _checked(work: Awaitable[WaitingCount]) -> WaitingCount:
    try:
        return await work
    except Problem as problem:
        raise _rejected(problem) from None


def _rejected(problem: Problem) -> Rejected:
    field = problem.details[0].field if problem.details else None
    return Rejected(400, problem.code, problem.message, {"field": field})


def _camel(name: str) -> str:
    return "routeId" if name == "route_id" else name


def open_embedded(
    where: str = "carillon.db",
    *,
    config: str | Path | None = None,
    blueprint: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Embedded:
    """Open a SQLite file or a `postgresql://` URL, with settings as `carillon serve` reads them."""
    return Embedded(
        where,
        config=None if config is None else Path(config),
        blueprint=blueprint,
        environ=os.environ if environ is None else environ,
    )
