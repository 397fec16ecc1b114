"""The console's HTTP surface: its files, the overview, the live ticks, and who reads streams."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import msgspec

from carillon.domain.lanes import Lanes
from carillon.domain.ports import Clock
from carillon.domain.streams import person_of
from carillon.upkeep.api.notifications import OperatorLedger
from carillon.upkeep.console import history, joined
from carillon.upkeep.console.attention import (
    NEWEST_CALLS,
    Attention,
    Counts,
    Failing,
    LaneView,
    Lookout,
    Seen,
    attention,
    failing,
    newest_errors,
)
from carillon.upkeep.console.series import Series
from carillon.web import EVERYBODY, KNOWN, OPERATORS, Answer, Endpoint, Outlet, Reply, Request
from carillon.web.files import FRAMED, KINDS, POLICY, fixed

MOST_READERS = 200
_FOLDER = "static"
TICK_SECONDS = 1.0
HEARTBEAT_TICKS = 5
"""The console calls the connection lost after three times as long without a word."""
LIFETIME_TICKS = 3600
OF_A_TENANT = frozenset(
    {"notifications", "dead-letters", "suppressions", "templates", "people", "digests", "categories", "audit"}
)
"""The pages for administrators of one tenant; the others show all tenants."""
OF_ANYBODY = frozenset({"notifications"})
_encode = msgspec.json.Encoder().encode


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
    heartbeat_seconds: float
    """How often a stream says something; one that is silent for much longer is dead."""


def stream_endpoints(readers: Callable[[], Mapping[str, int]], most: int, heartbeat_seconds: float) -> list[Endpoint]:
    """Who reads live at this replica, for operators; `readers` counts the connections of each person's stream."""

    async def show(_: Request) -> Reply:
        found = readers()
        shown = sorted(found.items(), key=lambda reader: (-reader[1], reader[0]))[:MOST_READERS]
        view = StreamsView(
            connections=sum(found.values()),
            most=most,
            people=len(found),
            readers=[_reader(stream, number) for stream, number in shown],
            heartbeat_seconds=heartbeat_seconds,
        )
        return Reply(200, view)

    return [
        Endpoint(
            method="GET",
            path="/api/v1/console/streams",
            call=show,
            name="consoleStreams",
            summary="Who reads live at this replica",
            tag="Console",
            about=OPERATORS,
            answers=(Answer(status=200, description="The live connections.", kind=StreamsView),),
        )
    ]


def _reader(stream: str, connections: int) -> ReaderView:
    tenant_id, user_id = person_of(stream)
    return ReaderView(user_id=user_id, tenant_id=tenant_id, connections=connections)


def file_endpoints() -> list[Endpoint]:
    """Every file of the folder under /console; the files hold no data, so everybody may read them."""
    found, texts = [_to_console()], {}
    for path, file in _walk(files("carillon.upkeep.console").joinpath(_FOLDER), ""):
        kind = file.name.rpartition(".")[2]
        if kind not in KINDS:
            continue
        texts[path] = file.read_bytes()
        policy = FRAMED if file.name == "frame.html" else POLICY
        if path != joined.SHEETS:
            found.append(fixed(f"/console/{path}", texts[path], kind, policy=policy))
        if path == "index.html":
            found.append(fixed("/console", texts[path], kind))
    scripts, styles = ({path: text for path, text in texts.items() if path.endswith(end)} for end in (".js", ".css"))
    found.append(fixed("/console/console.js", lambda: joined.script(scripts), "js"))
    return [*found, fixed(f"/console/{joined.SHEETS}", lambda: joined.style(styles), "css")]


def _to_console() -> Endpoint:
    """People who open the bare address in a browser want the console."""

    async def call(_: Request) -> Reply:
        return Reply(307, b"", {"Location": "/console"})

    return Endpoint(
        method="GET",
        path="/",
        call=call,
        name="frontDoor",
        summary="To the console",
        answers=(Answer(status=307, description="To the console"),),
        about=EVERYBODY,
        by_address=True,
        hidden=True,
    )


def _walk(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _walk(entry, f"{path}{entry.name}/")
        else:
            yield f"{path}{entry.name}", entry


class Overview(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Everything the first page shows; totals are the whole ledger's, steps are this process's last hour."""

    routes: dict[str, int]
    """By status."""
    due: int
    leased: int
    scheduled: int
    """Not tried yet and not due yet: a later time, quiet hours, or a hold."""
    lanes: list[LaneView]
    dead_letters: int
    failing: list[Failing]
    """Providers whose calls fail now, in every process of the fleet, the worst first."""
    attention: Attention
    """What needs attention, in sentences."""
    steps: list[dict[str, Any]]
    recent: list[dict[str, Any]]
    """Failures, breakers and troubles, newest first; `times` says how often the same failure came."""
    number: int


class Surface(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Which pages there is something to show on, and who the caller is."""

    pages: list[str]
    blueprint: str
    role: str | None
    channels: list[str]
    sandboxes: list[str]
    """Providers that send nothing and can be drilled."""
    absent: dict[str, str]
    """Pages that this process does not have, each with the reason."""


class Console:
    """Serves the data that the console needs beyond the API."""

    def __init__(
        self,
        ledger: OperatorLedger,
        lanes: Lanes,
        series: Series,
        clock: Clock,
        *,
        blueprint: str,
        pages: Sequence[str],
    ) -> None:
        self._ledger = ledger
        self._lanes = lanes
        self._series = series
        self._clock = clock
        self._blueprint = blueprint
        self._pages = list(pages)
        self._remembered = history.Remembered()
        self.history = history.ConsoleHistory(ledger, series, clock, self._remembered)
        self.channels: Mapping[str, Sequence[str]] = {}
        self.sandboxes: Sequence[str] = ()
        self.absent: Mapping[str, str] = {}
        self.lookout: Lookout | None = None

    async def overview(self, request: Request) -> Reply:
        del request
        counts, found_failing, errors = await self._remembered.get("overview", self._looked)
        seen = Seen() if self.lookout is None else await self.lookout.look(self._clock.wall())
        number, _ = self._series.since(0)
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
        figures = Counts(
            routes=counts["routes"],
            waiting=counts["due"] + counts["scheduled"] + counts["routes"].get("failed", 0),
            lanes=lanes,
            failing=found_failing,
            errors=errors,
        )
        return Reply(
            200,
            Overview(
                routes=counts["routes"],
                due=counts["due"],
                leased=counts["leased"],
                scheduled=counts["scheduled"],
                lanes=lanes,
                dead_letters=counts["routes"]["dead_letter"],
                failing=found_failing,
                attention=attention(figures, seen),
                steps=self._series.steps(),
                recent=self._series.newest(),
                number=number,
            ),
        )

    async def _looked(self) -> tuple[dict[str, Any], list[Failing], dict[str, str]]:
        """What takes the longest in a large ledger."""
        recent = await self._ledger.recent_outcomes(None, NEWEST_CALLS)
        return await self._ledger.counts(), failing(recent, self._clock.wall()), newest_errors(recent)

    async def live(self, request: Request) -> Reply:
        """A tick each second while something happens, otherwise heartbeats."""
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
                absent=dict(self.absent),
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
                        await outlet.over.wait()
                if outlet.over.is_set():
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


def endpoints(console: Console) -> list[Endpoint]:
    """Overview, live ticks and the list of pages; the first two show every tenant."""
    return [
        Endpoint(
            method="GET",
            path="/api/v1/console/overview",
            call=console.overview,
            name="consoleOverview",
            summary="Everything at one look",
            tag="Console",
            about=OPERATORS,
            answers=(Answer(status=200, description="The overview.", kind=Overview),),
        ),
        Endpoint(
            method="GET",
            path="/api/v1/console/live",
            call=console.live,
            name="consoleLive",
            summary="What happens in this process, as it happens",
            tag="Console",
            about=OPERATORS,
            answers=(Answer(status=200, description="Server-sent events `tick`.", media_type="text/event-stream"),),
        ),
        Endpoint(
            method="GET",
            path="/api/v1/console/surface",
            call=console.surface,
            name="consoleSurface",
            summary="Which pages there are",
            tag="Console",
            about=KNOWN,
            answers=(Answer(status=200, description="The pages.", kind=Surface),),
        ),
        history.endpoint(console.history),
    ]
