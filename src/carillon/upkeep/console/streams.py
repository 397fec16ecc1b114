"""Who reads live at this replica, for those who look after it."""

from typing import Protocol

import msgspec

from carillon.domain.streams import person_of
from carillon.web import OPERATORS, Answer, Endpoint, Reply, Request

MOST = 200


class Crowd(Protocol):
    """The seats of this replica."""

    @property
    def taken(self) -> int: ...
    def readers(self) -> dict[str, int]:
        """Everybody who reads here, with how many connections."""
        ...


class ReaderView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One person who reads."""

    user_id: str
    tenant_id: str | None
    connections: int


class StreamsView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The live connections of the asked replica; others have their own."""

    connections: int
    most: int
    people: int
    readers: list[ReaderView]
    """Those with the most connections."""


class Gallery:
    """What the endpoint is answered from."""

    def __init__(self, crowd: Crowd, most: int) -> None:
        self._crowd = crowd
        self._most = most

    async def show(self, request: Request) -> Reply:  # noqa: ARG002 - nothing can be asked for
        readers = self._crowd.readers()
        shown = sorted(readers.items(), key=lambda reader: (-reader[1], reader[0]))[:MOST]
        view = StreamsView(
            connections=self._crowd.taken,
            most=self._most,
            people=len(readers),
            readers=[_view(log, number) for log, number in shown],
        )
        return Reply(200, view)


def _view(log: str, connections: int) -> ReaderView:
    tenant_id, user_id = person_of(log)
    return ReaderView(user_id=user_id, tenant_id=tenant_id, connections=connections)


def endpoints(gallery: Gallery) -> list[Endpoint]:
    """One question, for administrators of every tenant: people of all of them read here."""
    return [
        Endpoint(
            method="GET",
            path="/api/v1/console/streams",
            call=gallery.show,
            name="consoleStreams",
            summary="Who reads live at this replica",
            tag="Console",
            about=OPERATORS,
            answers=(Answer(status=200, description="The live connections.", kind=StreamsView),),
        )
    ]
