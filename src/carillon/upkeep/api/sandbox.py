"""The sandbox over HTTP: operators read the messages it captured and tell it what to answer."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta, UnsetType

from carillon.border import in_camel_case
from carillon.domain.content.shown import MessageView, message_view
from carillon.domain.notifications import Message
from carillon.web import OPERATORS, Answer, Endpoint, Problem, Reply, Request
from carillon.web.problems import rfc3339_ms
from carillon.web.request import convert

_PATH = "/api/v1/sandbox"
_ALL = "*"
_OF = "@"
"""Stands between a channel and one provider."""
_SHARED: dict[str, Any] = {"tag": "Sandbox", "about": OPERATORS}


class SandboxControls(Protocol):
    """The provider that sends nothing, as operators control it."""

    name: str

    def drill(self, channel: str, drill: Any) -> None: ...  # noqa: ANN401 - its own type, handed through

    def drills(self) -> dict[str, Any]: ...

    def captured(self) -> Sequence[msgspec.Struct]: ...


class CapturedMessage(MessageView, frozen=True, kw_only=True, omit_defaults=True):
    """What was rendered, without the parts that it has not."""


class CapturedView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One message that would have left."""

    message_id: str
    notification_id: str
    route_id: str
    channel: str
    recipient: str | None
    attempt: int
    outcome: str
    at: str
    message: CapturedMessage | None


class CapturedList(msgspec.Struct, frozen=True):
    """The last messages, newest first."""

    items: list[CapturedView]


class CapturedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which messages, and how many."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    notification_id: Annotated[str, Meta(min_length=1, max_length=255)] | UnsetType = msgspec.UNSET
    channel: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = msgspec.UNSET


def endpoints(
    sandboxes: Sequence[SandboxControls], channels: Sequence[str], drill_kind: type[msgspec.Struct]
) -> list[Endpoint]:
    """The sandbox endpoints; a drill on a channel is for every sandbox, one on channel@provider for that provider."""
    stage = _Stage(sandboxes, channels, drill_kind)
    drills = Answer(status=200, description="The drills under way, by channel", kind=dict[str, drill_kind])  # type: ignore[valid-type]
    return [
        *_lists(stage, drills),
        *_drills(stage, drills, Answer(status=200, description="The drill", kind=drill_kind)),
    ]


def _lists(stage: "_Stage", drills: Answer) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path=f"{_PATH}/messages",
            call=stage.messages,
            name="listSandboxMessages",
            summary="What would have been sent, newest first",
            query=CapturedQuery,
            answers=(Answer(status=200, description="The messages", kind=CapturedList),),
            **_SHARED,
        ),
        Endpoint(
            method="GET",
            path=f"{_PATH}/drills",
            call=stage.list,
            name="listDrills",
            summary="The drills under way",
            answers=(drills,),
            **_SHARED,
        ),
    ]


def _drills(stage: "_Stage", drills: Answer, drill: Answer) -> list[Endpoint]:
    one: dict[str, Any] = {"path": f"{_PATH}/drills/{{channel}}", "path_examples": {"channel": _ALL}, **_SHARED}
    return [
        Endpoint(
            method="GET",
            call=stage.show,
            name="showDrill",
            summary="The drill of one channel",
            answers=(drill,),
            **one,
        ),
        Endpoint(
            method="PUT",
            call=stage.begin,
            name="beginDrill",
            summary="Let a channel fail on purpose; * means all, sms@backup means one provider",
            body=drill.kind,
            body_examples={"outage": {"outcome": "unavailable", "times": 2}},
            answers=(drill,),
            **one,
        ),
        Endpoint(
            method="DELETE", call=stage.end, name="endDrill", summary="End a channel's drill", answers=(drills,), **one
        ),
    ]


class _Stage:
    def __init__(
        self, sandboxes: Sequence[SandboxControls], channels: Sequence[str], drill_kind: type[msgspec.Struct]
    ) -> None:
        self._sandboxes = sandboxes
        self._channels = frozenset(channels) | {_ALL}
        self._kind = drill_kind

    async def messages(self, request: Request) -> Reply:
        query = request.query(CapturedQuery)
        rows = [msgspec.structs.asdict(message) for sandbox in self._sandboxes for message in sandbox.captured()]
        found = [
            row
            for row in rows
            if query.notification_id in {msgspec.UNSET, row["notification_id"]}
            and query.channel in {msgspec.UNSET, row["channel"]}
        ]
        found.sort(key=lambda row: row["at"], reverse=True)
        return Reply(200, CapturedList([_view(row) for row in found[: query.limit]]))

    async def list(self, _: Request) -> Reply:
        return Reply(200, self._drills())

    async def show(self, request: Request) -> Reply:
        channel, meant = self._meant(request)
        drill = next((found[channel] for found in (one.drills() for one in meant) if channel in found), None)
        if drill is None:
            raise Problem("NOT_FOUND", "no drill is under way on this channel")
        return Reply(200, drill)

    async def begin(self, request: Request) -> Reply:
        channel, meant = self._meant(request)
        drill = convert(in_camel_case(request.value(), self._kind), self._kind)
        for sandbox in meant:
            sandbox.drill(channel, drill)
        return Reply(200, drill)

    async def end(self, request: Request) -> Reply:
        channel, meant = self._meant(request)
        for sandbox in meant:
            sandbox.drill(channel, None)
        return Reply(200, self._drills())

    def _meant(self, request: Request) -> tuple[str, Sequence[SandboxControls]]:
        channel, at, provider = request.params["channel"].partition(_OF)
        if channel not in self._channels:
            raise Problem("NOT_FOUND", f"there is no such channel here: {', '.join(sorted(self._channels))}")
        if not at:
            return channel, self._sandboxes
        meant = [sandbox for sandbox in self._sandboxes if sandbox.name == provider]
        if not meant:
            names = ", ".join(sorted(sandbox.name for sandbox in self._sandboxes))
            raise Problem("NOT_FOUND", f"no sandbox is named {provider}: there is {names}")
        return channel, meant

    def _drills(self) -> dict[str, Any]:
        """A drill of all sandboxes is listed by its channel, a drill of one by channel and provider."""
        found: dict[str, Any] = {}
        for channel in sorted({channel for sandbox in self._sandboxes for channel in sandbox.drills()}):
            told = [(sandbox.name, sandbox.drills().get(channel)) for sandbox in self._sandboxes]
            if all(drill == told[0][1] for _, drill in told):
                found[channel] = told[0][1]
            else:
                found |= {f"{channel}{_OF}{name}": drill for name, drill in told if drill is not None}
        return found


def _captured(channel: str, message: Message) -> CapturedMessage:
    return CapturedMessage(**msgspec.structs.asdict(message_view(channel, message)))


def _view(row: Mapping[str, Any]) -> CapturedView:
    return CapturedView(
        message_id=row["message_id"],
        notification_id=row["notification_id"],
        route_id=row["route_id"],
        channel=row["channel"],
        recipient=row["address"],
        attempt=row["attempt"],
        outcome=row["outcome"],
        at=rfc3339_ms(row["at"] * 1000),
        message=None if row["message"] is None else _captured(row["channel"], row["message"]),
    )
