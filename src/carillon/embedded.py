"""Carillon inside any asyncio program: the same engine, as durable, without a process or a port of its own."""

import asyncio
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import msgspec

from carillon.border import strict_loads
from carillon.client import Accepted, ApiRequest, Item, Notification, Rejected, SkippedRoute, Unreachable
from carillon.client.calls import AsyncClientCalls
from carillon.client.exchange import refused
from carillon.compose import Ledger, Program
from carillon.compose.intake import IntakePart
from carillon.compose.ledger import LedgerPart
from carillon.compose.providers import ProvidersPart
from carillon.config.reading import load
from carillon.domain.errors import BadIntent, CarillonError, DirectoryUnavailable, LedgerUnavailable, Overloaded
from carillon.domain.intents import Intent
from carillon.doors.http.wire import Context, SendBody, idempotency_key, reach_named, skipped_routes, to_intent
from carillon.in_process import WHERE, InProcessExchange
from carillon.providers.sandbox import Sandbox
from carillon.system import new_id
from carillon.upkeep.api.notifications_wire import notification_view
from carillon.web.problems import Problem, document, from_bad_intent
from carillon.web.request import convert

POLL_SECONDS = 0.05
SEND_PATH = "/api/v1/notifications/send"
EMBEDDED = "embedded"
"""The actor in the audit trail."""
Answered = TypeVar("Answered")


class Embedded(AsyncClientCalls):
    """The result of `carillon.open`; use it with `async with`. It has the calls of the client."""

    def __init__(self, where: str, *, config: Path | None, blueprint: str | None, environ: Mapping[str, str]) -> None:
        url = where if "://" in where else f"sqlite:///{quote(str(Path(where).absolute()))}"
        # The last word in every blueprint. Nobody listens here, so no link may name this program's port.
        own = {"CARILLON_LEDGER__URL": url, "CARILLON_HTTP__PORT": "0"}
        self._settings = load(blueprint, config, {**environ, **own})
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._program: Program | None = None
        self._api: InProcessExchange | None = None

    async def __aenter__(self) -> Self:
        ready = asyncio.Event()
        # A block may open again what an earlier one closed.
        self._stop, self._api = asyncio.Event(), None
        self._program = Program(self._settings, embedded=True)
        self._running = asyncio.create_task(self._program.run(self._stop, lambda _address: ready.set()))
        begun = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({self._running, begun}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            # The block does not begin, and so nobody ends it: what has begun to open must not go on sending.
            self._stop.set()
            await asyncio.wait({self._running})
            raise
        finally:
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
        """Return once the notification is stored; raises Rejected if it can never be accepted, or Unreachable."""
        return await self.send_item(Item(template_key=template_key, **about))

    async def send_item(self, item: Item) -> Accepted:
        """The same for an Item."""
        # As the client makes one up: a caller can repeat what the ledger may have written without saying so.
        key = str(uuid.uuid4()) if item.idempotency_key is None else item.idempotency_key
        with _in_the_words_of_clients(key):
            asked = _intent(msgspec.structs.replace(item, idempotency_key=key))
            acceptance = await self.program.part(IntakePart).intake.accept(asked)
        return Accepted(
            notification_id=acceptance.notification_id,
            status="skipped" if acceptance.skipped else "queued",
            queue_name=acceptance.queue_name,
            replayed=acceptance.replayed,
            skipped=msgspec.convert(
                msgspec.to_builtins(skipped_routes(acceptance.suppressed, acceptance.gated)), list[SkippedRoute]
            ),
        )

    async def get(self, notification_id: str, *, attempts: bool = True) -> Notification | None:
        """The notification as it stands now, with every attempt unless you leave them out; None when there is none."""
        with _in_the_words_of_clients():
            story = await self._ledger.story(notification_id, None)
        return None if story is None else self._seen(story, {"attempts"} if attempts else set())

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

    def _seen(self, story: Any, include: set[str]) -> Notification:  # noqa: ANN401 - a ledger's rows
        view = notification_view(story, include, strict=self._settings.strict_receipts)
        return msgspec.convert(msgspec.to_builtins(view), Notification)


@contextmanager
def _in_the_words_of_clients(key: str | None = None) -> Iterator[None]:
    """Raise what a client raises, who sees the same over HTTP: Rejected with the whole problem, or Unreachable."""
    try:
        yield
    except (BadIntent, Problem) as error:
        problem = from_bad_intent(error) if isinstance(error, BadIntent) else error
        raise refused(problem.status, document(problem, instance=SEND_PATH, trace_id="")) from None
    except (LedgerUnavailable, DirectoryUnavailable, Overloaded) as error:
        raise Unreachable(f"{WHERE}: {error}", key) from error


def _intent(item: Item) -> Intent:
    """What an item asks for, by the rules of HTTP; raises Problem and BadIntent."""
    if item.synchronous:
        said = "an embedded Carillon is never synchronous: await wait() after the send"
        raise BadIntent("SYNCHRONOUS_UNAVAILABLE", said, field="synchronous")
    said = strict_loads(msgspec.json.encode(msgspec.structs.replace(item, idempotency_key=None)))
    body = convert(said, SendBody)
    context = Context(
        reach=reach_named(body),
        correlation_id=new_id(),
        idempotency_key=idempotency_key(item.idempotency_key, None),
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
