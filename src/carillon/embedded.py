"""Carillon inside any asyncio program: the same engine, as durable, without a process or a port of its own."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from carillon.border import fault
from carillon.client import Accepted, ApiRequest, Item, Notification, Rejected, SkippedRoute
from carillon.client.calls import AsyncClientCalls
from carillon.compose import Ledger, Program
from carillon.compose.intake import IntakePart
from carillon.compose.ledger import LedgerPart
from carillon.compose.providers import ProvidersPart
from carillon.config.reading import load
from carillon.domain.errors import BadIntent, CarillonError
from carillon.domain.intents import Intent
from carillon.doors.http.wire import Context, SendBody, reach_named, skipped_routes, to_intent
from carillon.in_process import InProcessExchange
from carillon.providers.sandbox import Sandbox
from carillon.system import new_id
from carillon.upkeep.api.notifications_wire import notification_view

POLL_SECONDS = 0.05
EMBEDDED = "embedded"
"""The actor in the audit trail."""
Answered = TypeVar("Answered")


class Embedded(AsyncClientCalls):
    """The result of `carillon.open`; use it with `async with`. It has the calls of the client."""

    def __init__(self, where: str, *, config: Path | None, blueprint: str | None, environ: Mapping[str, str]) -> None:
        url = where if "://" in where else f"sqlite:///{Path(where).absolute()}"
        # Nobody listens here, so no link may name this program's port.
        own = {"DATABASE_URL": url, "CARILLON_HTTP__PORT": "0"}
        self._settings = load(blueprint, config, {**environ, **own})
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._program: Program | None = None
        self._api: InProcessExchange | None = None

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

    async def run(self, asked: ApiRequest[Answered]) -> Answered:
        if self._api is None:
            # Most programs only send: the endpoints are made for the first other call.
            self._api = InProcessExchange(self.program.api(EMBEDDED))
        return await self._api.run(asked)

    async def preference_link(self, user_id: str, tenant_id: str | None = None) -> str:
        """As carillon.client.Client.preference_link: another process serves the page, and `consent.url` names it."""
        if self._settings.consent.url is None:
            said = "consent.url: an embedded Carillon serves no page; write the URL of the process that does"
            raise Rejected(409, "CONFLICT", said, {})
        return await super().preference_link(user_id, tenant_id)

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
