"""The operators' endpoints: search and show notifications, cancel, list and redrive dead letters."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from carillon.domain.admin import AdminLedger, WaitingLedger
from carillon.domain.groups import Groups
from carillon.domain.lanes import Lanes
from carillon.domain.notifications import Story
from carillon.domain.ports import UpkeepLedger
from carillon.domain.targets import Waiting
from carillon.upkeep.api.dead_letters_wire import (
    DeadLetterPage,
    DeadLetterQuery,
    RedriveBody,
    Redriven,
    dead_letter_view,
)
from carillon.upkeep.api.notifications_wire import (
    Cancelled,
    NotificationPage,
    NotificationView,
    RouteView,
    SearchQuery,
    ShowQuery,
    notification_view,
    statuses_of,
)
from carillon.upkeep.api.waiting import record
from carillon.upkeep.api.waits import Waits
from carillon.upkeep.redriving import redrive_action, redrive_failed, redrive_plan
from carillon.web import (
    ADMINISTRATORS,
    About,
    Answer,
    Callers,
    Endpoint,
    Found,
    Owned,
    Problem,
    Reply,
    Request,
    in_query,
)
from carillon.web.paging import CursorShape, counts
from carillon.web.request import unix_ms

_PATH = "/api/v1"
_EXAMPLE_ID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
_STORIES = CursorShape("notifications", {"before_us": ("place", int), "before_id": ("notification_id", str)})
_LETTERS = CursorShape(
    "dead-letters",
    {"before_us": ("place", int), "before_id": ("notification_id", str), "before_route": ("route_id", str)},
)
_ALL = 2**62
CAPPED = 1000
_FILTERS = {
    "channel": "channel",
    "classification": "classification",
    "template_key": "notification_type",
    "recipient": "recipient",
    "trace_id": "trace_id",
    "service_origin": "origin",
    "notification_id": "notification_id",
}
"""The ledger's name of each field of a query."""


class OperatorLedger(AdminLedger, UpkeepLedger, WaitingLedger, Protocol):
    """Reads notifications and dead letters, redrives them, and records who did so."""


def endpoints(
    ledger: OperatorLedger,
    providers: Mapping[str, Sequence[str]],
    lanes: Lanes,
    *,
    groups: Mapping[str, Groups] | None = None,
    waits_for: Waits | None = None,
    strict_receipts: bool = False,
) -> list[Endpoint]:
    """The upkeep endpoints; `providers` are those of each channel, which a redrive may choose from.

    With strict receipts a route is delivered only when a vendor reports it.
    """
    handlers = _Notifications(ledger, providers, lanes, groups or {}, waits_for=waits_for, strict=strict_receipts)
    return [*_notifications(handlers), *_dead_letters(handlers)]


def _notifications(handlers: "_Notifications") -> list[Endpoint]:
    one = About(callers=Callers.KNOWN, owned=notification(handlers.ledger), shared=True)
    return [
        Endpoint(
            method="GET",
            path=f"{_PATH}/notifications",
            call=handlers.search,
            name="searchNotifications",
            summary="Search notifications, newest first",
            about=About(callers=Callers.KNOWN, person=(in_query("userId"),), tenant=in_query("tenantId"), shared=True),
            query=SearchQuery,
            answers=(Answer(status=200, description="One page", kind=NotificationPage),),
        ),
        Endpoint(
            method="GET",
            path=f"{_PATH}/notifications/{{id}}",
            call=handlers.show,
            name="showNotification",
            summary="Show one notification",
            description="`include=attempts,message` adds every attempt and the rendered content to each route.",
            about=one,
            query=ShowQuery,
            path_examples={"id": _EXAMPLE_ID},
            answers=(Answer(status=200, description="The notification", kind=NotificationView),),
        ),
        Endpoint(
            method="POST",
            path=f"{_PATH}/notifications/{{id}}/cancel",
            call=handlers.cancel,
            name="cancelNotification",
            summary="Stop what has not been attempted yet",
            description="What a worker holds at this moment may be on its way: it is counted as `tooLate`, is not "
            "interrupted, and is not tried again.",
            about=one,
            path_examples={"id": _EXAMPLE_ID},
            answers=(Answer(status=200, description="Its waiting routes are skipped", kind=Cancelled),),
            problems=("CONFLICT",),
        ),
    ]


def _dead_letters(handlers: "_Notifications") -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path=f"{_PATH}/dead-letters",
            call=handlers.dead_letters,
            name="listDeadLetters",
            summary="List dead letters, newest first",
            tag="Dead letters",
            about=ADMINISTRATORS,
            query=DeadLetterQuery,
            answers=(Answer(status=200, description="One page", kind=DeadLetterPage),),
        ),
        Endpoint(
            method="POST",
            path=f"{_PATH}/dead-letters/redrive",
            call=handlers.redrive,
            name="redriveDeadLetters",
            summary="Give dead letters a fresh budget",
            description="They keep their ids; what is no dead letter is left alone and not counted. Who did, and how "
            "far it came, is told by `/api/v1/admin/audit` and `/api/v1/admin/redrives`.",
            tag="Dead letters",
            about=ADMINISTRATORS,
            body=RedriveBody,
            body_examples={
                "one": {"items": [{"notificationId": _EXAMPLE_ID, "routeId": "email:email:ada@example.org"}]}
            },
            answers=(Answer(status=200, description="Done", kind=Redriven, example={"redriven": 1}),),
        ),
    ]


def notification(ledger: UpkeepLedger) -> Owned:
    """One notification, by the id in the path; its owners are the user it is for and the service that sent it."""

    async def find(notification_id: str, tenant_id: str | None) -> Found | None:
        story = await ledger.story(notification_id, tenant_id)
        if story is None:
            return None
        said = story.notification
        return Found(story, said["tenant_id"], said["user_id"], said["sent_by"])

    return Owned(param="id", find=find, missing="there is no notification with this id")


class _Notifications:
    def __init__(
        self,
        ledger: OperatorLedger,
        providers: Mapping[str, Sequence[str]],
        lanes: Lanes,
        groups: Mapping[str, Groups],
        *,
        waits_for: Waits | None,
        strict: bool,
    ) -> None:
        self.ledger = ledger
        self._waits_for = waits_for
        self._providers = providers
        self._lanes = lanes
        self._groups = groups
        self._strict = strict

    async def show(self, request: Request) -> Reply:
        query = request.query(ShowQuery)
        (view,) = await self._views([request.found], query)
        return Reply(200, view)

    async def _views(self, stories: Sequence[Story], query: ShowQuery | SearchQuery) -> list[NotificationView]:
        """Each notification, with what keeps its queued routes from their calls."""
        views = [self._view(story, query) for story in stories]
        if self._waits_for is None:
            return views
        lanes = {(row["notification_id"], row["route_id"]): row["lane"] for story in stories for row in story.routes}
        waiting = [
            Waiting(
                channel=route.channel,
                provider=route.provider,
                address=route.recipient,
                tenant_id=view.tenant_id,
                lane=lanes[view.id, route.route_id],
                template_key=view.template_key,
            )
            for view in views
            for route in view.routes
            if route.status == "queued"
        ]
        said = iter(await self._waits_for(waiting) if waiting else ())
        return [
            msgspec.structs.replace(
                view,
                routes=[_waiting(route, next(said)) if route.status == "queued" else route for route in view.routes],
            )
            for view in views
        ]

    def _view(self, story: Story, query: ShowQuery | SearchQuery) -> NotificationView:
        for route in story.routes:
            groups = self._groups.get(route["provider"])
            if groups is not None:
                route["waits_for"] = groups.waits_for(route["grp"], route["group_calls"])
                if route["waits_for"] is not None:
                    # Claimed ahead of a place: no attempt is under way.
                    route.update(route.get("before_claim", {}))
        return notification_view(story, _included(query), chains=self._providers, strict=self._strict)

    async def cancel(self, request: Request) -> Reply:
        notification_id: str = request.found.notification["notification_id"]
        filters = {"notification_id": notification_id}
        done = await self.ledger.cancel_waiting(filters)
        if request.caller.administers and done.done:
            # What people and services cancel of their own is nothing that an operator does by hand.
            detail = {"filters": filters, "done": done.done}
            await record(self.ledger, "cancel_waiting", detail, request.caller.actor, request.reach)
        if not done.done:
            held = f": {done.too_late} of them too late, in a provider's call" if done.too_late else ""
            raise Problem("CONFLICT", f"no route of this notification is waiting any more{held}")
        return Reply(200, Cancelled(notification_id, done.done, done.too_late))

    async def search(self, request: Request) -> Reply:
        query = request.query(SearchQuery)
        filters = _filters(query, request)
        if query.accepted_after is not UNSET:
            filters["accepted_after_ms"] = unix_ms(query.accepted_after, "acceptedAfter")
        if query.accepted_before is not UNSET:
            filters["accepted_before_ms"] = unix_ms(query.accepted_before, "acceptedBefore")
        if query.status is not UNSET:
            filters["statuses"] = list(statuses_of(query.status, strict=self._strict))
        if query.q is not UNSET:
            filters["text"] = query.q
        place, offset = _STORIES.place(query.cursor, query.page, query.page_size)
        most = 0 if query.cursor is not UNSET else CAPPED if query.count == "capped" else _ALL
        found, total = await self.ledger.search({**filters, **place}, query.page_size + 1, offset, most)
        stories, cursor = _STORIES.cut(found, query.page_size, [story.notification for story in found])
        page = NotificationPage(
            items=await self._views(stories, query),
            next_cursor=cursor,
            **counts(query.cursor, query.page, query.page_size, total),
        )
        return Reply(200, page)

    async def dead_letters(self, request: Request) -> Reply:
        query = request.query(DeadLetterQuery)
        place, offset = _LETTERS.place(query.cursor, query.page, query.page_size)
        found, total = await self.ledger.dead_letters(
            {**_filters(query, request), **place}, query.page_size + 1, offset
        )
        rows, cursor = _LETTERS.cut(found, query.page_size, found)
        page = DeadLetterPage(
            items=[dead_letter_view(row) for row in rows],
            next_cursor=cursor,
            **counts(query.cursor, query.page, query.page_size, total),
        )
        return Reply(200, page)

    async def redrive(self, request: Request) -> Reply:
        body = request.json(RedriveBody)
        keys = sorted({(item.notification_id, item.route_id) for item in body.items})
        if body.provider is not None:
            self._check_provider(body.provider, keys)
        # A tenant's administrator must not learn that another's dead letter exists, so it is simply not counted.
        filters: dict[str, Any] = {"letters": keys, **request.reach.filters()}
        counts = await self.ledger.failed_counts(filters)
        action = redrive_action(
            actor=request.caller.actor,
            reason=body.reason,
            filters=filters,
            matched=counts.total,
            provider=body.provider,
        )
        how = redrive_plan(self._lanes, provider=body.provider)
        done = await redrive_failed(self.ledger, filters, how, action, counts)
        return Reply(200, Redriven(done.count, counts.suppressed))

    def _check_provider(self, provider: str, keys: list[tuple[str, str]]) -> None:
        for _, route_id in keys:
            channel = route_id.partition(":")[0]
            # No worker would ever claim a route whose provider does not exist.
            if provider not in self._providers.get(channel, ()):
                raise Problem("VALIDATION_ERROR", f"{provider} is not a provider of the channel of {route_id}")


def _waiting(route: RouteView, target: str | None) -> RouteView:
    """The route with all that it waits for: a place of its group, and what keeps its targets from being called."""
    said = [word for word in (route.waits_for, target) if word]
    return msgspec.structs.replace(route, waits_for="; ".join(said) or None)


def _included(query: ShowQuery | SearchQuery) -> tuple[str, ...]:
    return () if query.include is UNSET else tuple(query.include.split(","))


def _filters(query: SearchQuery | DeadLetterQuery, request: Request) -> dict[str, Any]:
    found = {ours: getattr(query, theirs, UNSET) for theirs, ours in _FILTERS.items()}
    return {name: value for name, value in found.items() if value is not UNSET} | request.reach.filters()
