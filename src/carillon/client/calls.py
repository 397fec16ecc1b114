"""The calls that one request answers, in plain and in asyncio form: a subclass says how a request runs."""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from carillon.client import wire
from carillon.client.answers import (
    ErasureReport,
    ItemAnswer,
    Notification,
    Page,
    Refusal,
    SkippedRedrive,
    SuppressedAddress,
)
from carillon.client.exchange import Rejected
from carillon.client.wire import LARGEST_BATCH, LARGEST_BODY, ApiRequest, Item
from carillon.domain.admin import WaitingCount
from carillon.domain.explain import Explanation

Answered = TypeVar("Answered")
_TOO_LARGE, _UNREADABLE = 413, 400


class ClientCalls(ABC):
    """What the client and the outbox of the pytest plugin share."""

    @abstractmethod
    def run(self, asked: ApiRequest[Answered]) -> Answered:
        """Run any request of carillon.client.wire; raises Rejected or Unreachable."""

    def send_many(self, items: Sequence[Item]) -> list[ItemAnswer]:
        """Send any number of items; one answer for each, in order, with an `error` where it was not accepted."""
        return _numbered([answer for batch in _batches(items) for answer in self._send_batch(batch)])

    def _send_batch(self, items: Sequence[Item]) -> list[ItemAnswer]:
        try:
            return self.run(wire.send_many(items, str(uuid.uuid4())))
        except Rejected as error:
            halves = _halves(items, error)
            if not halves:
                return [_refusal(error)]
        return [answer for half in halves for answer in self._send_batch(half)]

    def search(
        self,
        *,
        page: int = 1,
        page_size: int = 20,
        cursor: str | None = None,
        **filters: Any,  # noqa: ANN401 - query
    ) -> Page[Notification]:
        """Search by the filters of `GET /api/v1/notifications`: channel, status, user_id, template_key and so on.

        `cursor`, the `next_cursor` of a page, goes on after it, however many there are.
        """
        return self.run(wire.search(filters, page, page_size, cursor))

    def explain(self, template_key: str, /, **about: Any) -> Explanation:  # noqa: ANN401 - fields of Item
        """What would happen to the notification, gate by gate; nothing is sent."""
        return self.run(wire.explain(Item(template_key=template_key, **about)))

    def cancel(self, notification_id: str) -> int:
        """Cancel the routes that no worker has claimed; returns their number."""
        return self.run(wire.cancel(notification_id))

    def cancel_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """Cancel what waits: by `notification_id`, `idempotency_key`, `collapse_key`, or the filters of a search.

        Everything that is given must match. `dry_run` counts first.
        """
        return self.run(wire.waiting("cancel", selected, dry_run=dry_run))

    def change_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """Give what waits another time: `scheduled_for`, `expires_at` or `ttl`; selected as in `cancel_waiting`."""
        return self.run(wire.waiting("change", selected, dry_run=dry_run))

    def prefer(self, user_id: str, tenant_id: str | None = None, **wishes: Any) -> None:  # noqa: ANN401 - fields
        """Change a person's preferences: `categories`, `channels`, `contacts`, `time_zone`, `quiet_hours` and so on.

        What is not named stays; `replace=True` forgets it.
        """
        self.run(wire.prefer(user_id, tenant_id, wishes))

    def preferences(self, user_id: str, tenant_id: str | None = None) -> dict[str, Any]:
        """A person's preferences as `GET /api/v1/preferences/user/{userId}` answers them."""
        return self.run(wire.preferences(user_id, tenant_id))

    def preference_link(self, user_id: str, tenant_id: str | None = None) -> str:
        """The address of the person's own page, which needs no login: give it to that person only."""
        return self.run(wire.preference_link(user_id, tenant_id))

    def export_person(self, user_id: str, tenant_id: str | None = None) -> list[dict[str, Any]]:
        """Everything about a person, one thing at a time; `what` of each says what it is."""
        return self.run(wire.export_person(user_id, tenant_id))

    def erase_person(self, user_id: str, tenant_id: str | None = None) -> ErasureReport:
        """Erase everything about a person; where `finished` is false, call it again later."""
        return self.run(wire.erase_person(user_id, tenant_id))

    def suppress(self, channel: str, address: str, reason: str, **about: Any) -> SuppressedAddress:  # noqa: ANN401 - fields
        """Send nothing more to an address; `tenant_id` limits it to a tenant, `expires_at` says until when."""
        return self.run(wire.suppress(channel, address, reason, about))

    def suppressions(
        self,
        *,
        page: int = 1,
        page_size: int = 20,
        cursor: str | None = None,
        **filters: Any,  # noqa: ANN401 - query
    ) -> Page[SuppressedAddress]:
        """The addresses that nothing is sent to: by `channel`, `address`, `tenant_id`, `source`, `kind`, `shared`."""
        return self.run(wire.suppressions(filters, page, page_size, cursor))

    def lift_suppression(self, channel: str, address: str, tenant_id: str | None = None) -> bool:
        """Send to an address again; false where nothing was suppressed. What was skipped meanwhile stays skipped."""
        return self.run(wire.lift_suppression(channel, address, tenant_id))

    def redrive_skipped(self, reason: str, *, dry_run: bool = False, **selected: Any) -> SkippedRedrive:  # noqa: ANN401 - fields
        """Let what a gate skipped pass the gates again: by `gate`, `channel`, `user_id`, `template_key` and so on.

        Without a filter: all of it. `dry_run` counts first.
        """
        return self.run(wire.redrive_skipped(reason, selected, dry_run=dry_run))

    def report(
        self, notification_id: str, kind: str, *, channel: str | None = None, route_id: str | None = None
    ) -> str:
        """Report that a person got, read or acknowledged a message; returns `noted`, `repeated` or `waiting`."""
        return self.run(wire.report(notification_id, kind, channel, route_id))


class AsyncClientCalls(ABC):
    """The same for asyncio: what the asynchronous client and an embedded Carillon share."""

    @abstractmethod
    async def run(self, asked: ApiRequest[Answered]) -> Answered:
        """Run any request of carillon.client.wire; raises Rejected or Unreachable."""

    async def send_many(self, items: Sequence[Item]) -> list[ItemAnswer]:
        """Send any number of items; one answer for each, in order, with an `error` where it was not accepted."""
        return _numbered([answer for batch in _batches(items) for answer in await self._send_batch(batch)])

    async def _send_batch(self, items: Sequence[Item]) -> list[ItemAnswer]:
        try:
            return await self.run(wire.send_many(items, str(uuid.uuid4())))
        except Rejected as error:
            halves = _halves(items, error)
            if not halves:
                return [_refusal(error)]
        return [answer for half in halves for answer in await self._send_batch(half)]

    async def search(
        self,
        *,
        page: int = 1,
        page_size: int = 20,
        cursor: str | None = None,
        **filters: Any,  # noqa: ANN401 - query
    ) -> Page[Notification]:
        """As ClientCalls.search."""
        return await self.run(wire.search(filters, page, page_size, cursor))

    async def explain(self, template_key: str, /, **about: Any) -> Explanation:  # noqa: ANN401 - fields of Item
        """What would happen to the notification, gate by gate; nothing is sent."""
        return await self.run(wire.explain(Item(template_key=template_key, **about)))

    async def cancel(self, notification_id: str) -> int:
        """Cancel the routes that no worker has claimed; returns their number."""
        return await self.run(wire.cancel(notification_id))

    async def cancel_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """As ClientCalls.cancel_waiting."""
        return await self.run(wire.waiting("cancel", selected, dry_run=dry_run))

    async def change_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount:  # noqa: ANN401 - fields
        """As ClientCalls.change_waiting."""
        return await self.run(wire.waiting("change", selected, dry_run=dry_run))

    async def prefer(self, user_id: str, tenant_id: str | None = None, **wishes: Any) -> None:  # noqa: ANN401 - fields
        """As ClientCalls.prefer."""
        await self.run(wire.prefer(user_id, tenant_id, wishes))

    async def preferences(self, user_id: str, tenant_id: str | None = None) -> dict[str, Any]:
        """As ClientCalls.preferences."""
        return await self.run(wire.preferences(user_id, tenant_id))

    async def preference_link(self, user_id: str, tenant_id: str | None = None) -> str:
        """As ClientCalls.preference_link."""
        return await self.run(wire.preference_link(user_id, tenant_id))

    async def export_person(self, user_id: str, tenant_id: str | None = None) -> list[dict[str, Any]]:
        """As ClientCalls.export_person."""
        return await self.run(wire.export_person(user_id, tenant_id))

    async def erase_person(self, user_id: str, tenant_id: str | None = None) -> ErasureReport:
        """As ClientCalls.erase_person."""
        return await self.run(wire.erase_person(user_id, tenant_id))

    async def suppress(self, channel: str, address: str, reason: str, **about: Any) -> SuppressedAddress:  # noqa: ANN401 - fields
        """As ClientCalls.suppress."""
        return await self.run(wire.suppress(channel, address, reason, about))

    async def suppressions(
        self,
        *,
        page: int = 1,
        page_size: int = 20,
        cursor: str | None = None,
        **filters: Any,  # noqa: ANN401 - query
    ) -> Page[SuppressedAddress]:
        """As ClientCalls.suppressions."""
        return await self.run(wire.suppressions(filters, page, page_size, cursor))

    async def lift_suppression(self, channel: str, address: str, tenant_id: str | None = None) -> bool:
        """As ClientCalls.lift_suppression."""
        return await self.run(wire.lift_suppression(channel, address, tenant_id))

    async def redrive_skipped(self, reason: str, *, dry_run: bool = False, **selected: Any) -> SkippedRedrive:  # noqa: ANN401 - fields
        """As ClientCalls.redrive_skipped."""
        return await self.run(wire.redrive_skipped(reason, selected, dry_run=dry_run))

    async def report(
        self, notification_id: str, kind: str, *, channel: str | None = None, route_id: str | None = None
    ) -> str:
        """As ClientCalls.report."""
        return await self.run(wire.report(notification_id, kind, channel, route_id))


def _batches(items: Sequence[Item]) -> list[Sequence[Item]]:
    """What goes into one request each, by number and by size; raises for an item that is no JSON before any is sent."""
    found: list[Sequence[Item]] = []
    first = size = 0
    for place, item in enumerate(items):
        more = len(msgspec.json.encode(item)) + 1
        if place > first and (place - first == LARGEST_BATCH or size + more > LARGEST_BODY):
            found.append(items[first:place])
            first, size = place, 0
        size += more
    return [*found, items[first:]] if items else []


def _halves(items: Sequence[Item], error: Rejected) -> tuple[Sequence[Item], ...]:
    """Where one item may have spoilt the request of several: both halves of them; raises any other refusal.

    A server reads a request as a whole before it looks at the items: it refuses one that is too large, or whose texts
    no store can hold, without saying whose fault that is.
    """
    unreadable = error.status == _UNREADABLE and error.code == "VALIDATION_ERROR"
    if error.status != _TOO_LARGE and not (unreadable and not error.problem["error"].get("details")):
        raise error
    half = len(items) // 2
    return (items[:half], items[half:]) if half else ()


def _refusal(error: Rejected) -> ItemAnswer:
    """The answer of the one item of a refused request."""
    code, said = error.code, str(error).removeprefix(f"{error.code}: ")
    if error.status == _TOO_LARGE:
        code = "PAYLOAD_TOO_LARGE"
        said = "the notification is larger than the server takes: http.max_body_bytes, or the limit of a proxy"
    return ItemAnswer(index=0, status="rejected", error=Refusal(code, said))


def _numbered(answers: list[ItemAnswer]) -> list[ItemAnswer]:
    return [msgspec.structs.replace(answer, index=index) for index, answer in enumerate(answers)]
