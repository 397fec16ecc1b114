"""What the console asks for beyond the API: everything at one look, what has just happened, what is served here."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from carillon.domain.lanes import Lanes
from carillon.domain.ports import Clock, UpkeepLedger
from carillon.upkeep.console.series import Series
from carillon.web import KNOWN, OPERATORS, Answer, Endpoint, Outlet, Reply, Request

TICK_SECONDS = 1.0
HEARTBEAT_TICKS = 15
LIFETIME_TICKS = 3600
OF_A_TENANT = frozenset({"notifications", "dead-letters", "templates"})
"""What somebody may look at who acts for one tenant; the rest concerns all of them at once."""
OF_ANYBODY = frozenset({"notifications"})
_encode = msgspec.json.Encoder().encode


class LaneView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One lane: what is due in it, what is under way, and how old the oldest due route is."""

    name: str
    due: int
    leased: int
    oldest_due_seconds: float | None


class Overview(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Everything the first page shows; totals are the whole ledger's, steps are this process's last hour."""

    routes: dict[str, int]
    """By status."""
    due: int
    leased: int
    lanes: list[LaneView]
    dead_letters: int
    steps: list[dict[str, Any]]
    recent: list[dict[str, Any]]
    """Failures, breakers and troubles, newest first."""
    number: int


class Surface(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Which pages there is something to show on, and who the caller is."""

    pages: list[str]
    blueprint: str
    role: str | None
    channels: list[str]
    sandboxes: list[str]
    """Providers that send nothing and can be drilled."""


class Desk:
    """What the endpoints are answered from."""

    def __init__(
        self, ledger: UpkeepLedger, lanes: Lanes, series: Series, clock: Clock, *, blueprint: str, pages: Sequence[str]
    ) -> None:
        self._ledger = ledger
        self._lanes = lanes
        self._series = series
        self._clock = clock
        self._blueprint = blueprint
        self._pages = list(pages)
        self.channels: Mapping[str, Sequence[str]] = {}
        self.sandboxes: Sequence[str] = ()

    async def overview(self, request: Request) -> Reply:
        counts = await self._ledger.counts()
        del request
        dead = (await self._ledger.dead_letters({}, 1, 0))[1]
        number, recent = self._series.since(0)
        names = {lane.rank: name for name, lane in self._lanes.by_name.items()}
        lanes = [
            LaneView(
                name=names.get(rank, str(rank)),
                due=found["due"],
                leased=found["leased"],
                oldest_due_seconds=found["oldest_due_seconds"],
            )
            for rank, found in sorted(counts["lanes"].items())
        ]
        return Reply(
            200,
            Overview(
                routes=counts["routes"],
                due=counts["due"],
                leased=counts["leased"],
                lanes=lanes,
                dead_letters=dead,
                steps=self._series.steps(),
                recent=recent[::-1][:50],
                number=number,
            ),
        )

    async def live(self, request: Request) -> Reply:
        """A tick each second while something happens, and a sign of life when nothing does."""
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return Reply(200, self._pouring(request), headers, "text/event-stream")

    async def surface(self, request: Request) -> Reply:
        return Reply(
            200,
            Surface(
                pages=[page for page in self._pages if _may_open(page, request)],
                blueprint=self._blueprint,
                role=request.caller.role,
                channels=sorted(self.channels),
                sandboxes=sorted(self.sandboxes),
            ),
        )

    def _pouring(self, request: Request) -> Any:  # noqa: ANN401 - a body that writes itself
        async def pour(outlet: Outlet) -> None:
            number, _ = self._series.since(0)
            last = self._series.steps()[-1:]
            await outlet.write(b"retry: 3000\n\n")
            for tick in range(LIFETIME_TICKS):
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK_SECONDS):
                        await outlet.gone.wait()
                if outlet.gone.is_set():
                    return
                number, told = self._series.since(number)
                now = self._series.steps()[-1:]
                if told or now != last:
                    last = now
                    await outlet.write(b"event: tick\ndata: " + _encode({"step": now, "recent": told}) + b"\n\n")
                elif tick % HEARTBEAT_TICKS == 0:
                    await request.prove()
                    await outlet.write(b": alive\n\n")

        return pour


def _may_open(page: str, request: Request) -> bool:
    match request.caller.kind:
        case "operator":
            return True
        case "administrator":
            return page in OF_A_TENANT
        case _:
            return page in OF_ANYBODY


def endpoints(desk: Desk) -> list[Endpoint]:
    """The three questions; the first two concern all tenants at once."""
    return [
        Endpoint(
            method="GET",
            path="/api/v1/console/overview",
            call=desk.overview,
            name="consoleOverview",
            summary="Everything at one look",
            tag="Console",
            about=OPERATORS,
            answers=(Answer(status=200, description="The overview.", kind=Overview),),
        ),
        Endpoint(
            method="GET",
            path="/api/v1/console/live",
            call=desk.live,
            name="consoleLive",
            summary="What happens in this process, as it happens",
            tag="Console",
            about=OPERATORS,
            answers=(Answer(status=200, description="Server-sent events `tick`.", media_type="text/event-stream"),),
        ),
        Endpoint(
            method="GET",
            path="/api/v1/console/surface",
            call=desk.surface,
            name="consoleSurface",
            summary="Which pages there are",
            tag="Console",
            about=KNOWN,
            answers=(Answer(status=200, description="The pages.", kind=Surface),),
        ),
    ]
