"""For your tests: a whole Carillon that sends nothing and shows what it would have sent."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import pytest

from carillon.client import Accepted, ApiRequest, Item, Notification, Route
from carillon.client.calls import ClientCalls
from carillon.compose.from_settings import SANDBOX
from carillon.config.sections import Alerts, HistorySettings, Kafka, RabbitmqDoor, ServicebusDoor
from carillon.config.settings import Redis, Settings
from carillon.domain.timing import duration
from carillon.embedded import Embedded
from carillon.providers.sandbox import Captured, Drill, OutcomeWord

T = TypeVar("T")
PATIENCE_SECONDS = 20.0
LOOK_SECONDS = 0.02


class _Alone(Embedded):
    """Reaches nobody, whatever the settings say: no vendor, no queue of producers, no alarms, no archive."""

    def __init__(self, where: str, **options: Any) -> None:  # noqa: ANN401 - Embedded's
        super().__init__(where, **options)
        self._settings = alone(self._settings)


def alone(settings: Settings) -> Settings:
    """The settings with a sandbox in the place of every provider, under its name, and without other servers."""
    return msgspec.structs.replace(
        settings,
        # Nobody listens, so that callers who prove nothing find no door.
        http=msgspec.structs.replace(settings.http, host="127.0.0.1"),
        providers={
            name: options if options.get("kind") == SANDBOX else {"kind": SANDBOX}
            for name, options in settings.providers.items()
        },
        rabbitmq_door=RabbitmqDoor(),
        servicebus_door=ServicebusDoor(),
        kafka=Kafka(),
        redis=Redis(),
        alerts=Alerts(),
        history=HistorySettings(),
    )


class OutboxClock:
    """Lets time pass for everything that waits."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        self._advance = advance

    def advance(self, by: float | str) -> None:
        """Let so many seconds pass, or a duration such as `90s`, `1h` or `PT1H`."""
        seconds = duration(by)
        if seconds is None:
            raise ValueError(f"{by!r} is not a duration such as 90, 10m, 1h or PT10M")
        self._advance(seconds)


class Outbox(ClientCalls):
    """A Carillon for tests, plain or asynchronous, with the calls of the client; its engine has a thread of its own."""

    def __init__(self, folder: Path, config: Path | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="carillon-outbox", daemon=True)
        self._where = str(folder / "outbox.db")
        self._config = config
        self._engine: Embedded | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._engine = self._do(self._open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._do(self._opened.__aexit__(None, None, None))
        finally:
            self._end()

    def run(self, asked: ApiRequest[T]) -> T:
        return self._do(self._opened.run(asked), asked.takes_seconds)

    def send(self, template_key: str, /, **about: Any) -> Accepted:  # noqa: ANN401 - fields of Item
        """As carillon.client.Client.send."""
        return self._do(self._opened.send_item(Item(template_key=template_key, **about)))

    def send_item(self, item: Item) -> Accepted:
        """As carillon.client.Client.send_item, so that an outbox can stand in for a client."""
        return self._do(self._opened.send_item(item))

    def get(self, notification_id: str, *, attempts: bool = True) -> Notification | None:
        """As carillon.client.Client.get."""
        return self._do(self._opened.get(notification_id, attempts=attempts))

    def wait(self, notification_id: str, timeout_seconds: float = PATIENCE_SECONDS) -> Notification:
        """As carillon.client.Client.wait."""
        return self._do(self._opened.wait(notification_id, timeout_seconds), timeout_seconds)

    def get_routes(self, notification_id: str) -> list[Route]:
        """The routes of a notification as they stand once nothing is due."""
        self._settle()
        found = self.get(notification_id)
        return [] if found is None else found.routes

    def report(
        self, notification_id: str, kind: str, *, channel: str | None = None, route_id: str | None = None
    ) -> str:
        """As carillon.client.Client.report, once nothing is due."""
        self._settle()
        return super().report(notification_id, kind, channel=channel, route_id=route_id)

    def fail(self, channel: str = "*", outcome: OutcomeWord = "unavailable", *, times: int | None = None) -> None:
        """Make the providers of this channel answer so, for the first `times` calls of each message or always."""
        self._drill(channel, Drill(outcome=outcome, times=times))

    def recover(self, channel: str = "*") -> None:
        """Providers of this channel work again."""
        self._drill(channel, None)

    @property
    def clock(self) -> "OutboxClock":
        """The time of this Carillon: `outbox.clock.advance("1h")`."""
        return OutboxClock(self.advance)

    def advance(self, seconds: float) -> None:
        """Make everything that waits due earlier by so many seconds: retries, schedules, deferrals, expiries."""
        # Wait for attempts under way first: their retries begin to wait only when the attempt has ended.
        self._settle()
        self._do(self._opened.hasten(seconds))

    @property
    def messages(self) -> list[Captured]:
        """Every message that the providers got, oldest first, whatever their answer."""
        return self._do(self._captured())

    def sent(
        self, template_key: str | None = None, *, channel: str | None = None, recipient: str | None = None
    ) -> list[Captured]:
        """The sent messages that match."""
        found = [one for one in self.messages if one.outcome == "sent" and channel in (None, one.channel)]
        found = [one for one in found if recipient in (None, one.address)]
        if template_key is None:
            return found
        return [one for one in found if self._template(one.notification_id) == template_key]

    def assert_sent(
        self,
        template_key: str | None = None,
        *,
        channel: str | None = None,
        recipient: str | None = None,
        times: int = 1,
        containing: str | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> list[Captured]:
        """Wait until nothing is due, and fail unless so many messages were sent; returns them."""
        __tracebackhide__ = True

        def matching() -> list[Captured]:
            found = self.sent(template_key, channel=channel, recipient=recipient)
            return [one for one in found if containing is None or containing in _text(one)]

        self._until(lambda: len(matching()) >= times, patience_seconds)
        self._settle()
        found = matching()
        if len(found) != times:
            seen = "\n".join(f"  {one.channel} to {one.address}: {one.outcome}" for one in self.messages) or "  nothing"
            pytest.fail(f"{len(found)} messages instead of {times} match; providers were asked for:\n{seen}")
        return found

    def assert_nothing_sent(self, channel: str | None = None) -> None:
        """Wait until nothing is due, and fail if a message was sent."""
        __tracebackhide__ = True
        self._settle()
        if found := self.sent(channel=channel):
            pytest.fail(
                "nothing should have been sent, but: " + ", ".join(f"{m.channel} to {m.address}" for m in found)
            )

    @property
    def _opened(self) -> Embedded:
        if self._engine is None:
            raise RuntimeError("the outbox is not open")
        return self._engine

    async def _open(self) -> Embedded:
        return await _Alone(self._where, config=self._config, blueprint=None, environ={}).__aenter__()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T], seconds: float = 0.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(max(PATIENCE_SECONDS, seconds) + 10)

    async def _captured(self) -> list[Captured]:
        return sorted((one for box in self._opened.sandboxes for one in box.captured()), key=lambda one: one.at)

    def _drill(self, channel: str, drill: Drill | None) -> None:
        async def tell() -> None:
            for box in self._opened.sandboxes:
                box.drill(channel, drill)

        self._do(tell())

    def _template(self, notification_id: str) -> str | None:
        found = self.get(notification_id)
        return None if found is None else found.template_key

    def _settle(self) -> None:
        """Wait until no route is due; routes that wait for later stay."""
        self._until(lambda: self._do(self._opened.due()) == 0, PATIENCE_SECONDS)

    def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        # Sleep on the engine's loop: the test may run inside a loop of its own.
        ends_at = self._loop.time() + seconds
        while not condition() and self._loop.time() < ends_at:
            self._do(asyncio.sleep(LOOK_SECONDS))


def _text(message: Captured) -> str:
    content = message.message
    return "" if content is None else "\n".join(part for part in (content.subject, content.text, content.html) if part)
