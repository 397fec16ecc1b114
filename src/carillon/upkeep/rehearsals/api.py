"""A rehearsal over HTTP: operators ask, follow its progress and get its figures; who leaves ends it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from carillon.domain.errors import ConfigurationError
from carillon.ending import ended
from carillon.upkeep.rehearsals.child import RehearsalBounds, RehearsalLine, playing
from carillon.upkeep.rehearsals.figures import BreakerTime, Figures, Lateness, Slice
from carillon.upkeep.rehearsals.plan import RehearsalQuestion, plan_of
from carillon.web import OPERATORS, Answer, Endpoint, Outlet, Problem, Reply, Request
from carillon.web.problems import Detail

PATH = "/api/v1/rehearsals"
MOST_PLAYED = 20_000
"""About half a minute of processor time."""
FIELDS = {
    "--load": "load",
    "--for": "for",
    "--outage": "outages",
    "--mix": "mix",
    "--price": "prices",
    "--latency": "latencies",
}
"""The fields of the question by the options that mean the same on a command line."""
UNDER_WAY = "a rehearsal is under way in this process: wait for its end, or stop it"
_DESCRIPTION = """\
Plays hours of virtual time through the real policies, breakers, lanes and failover of this process's own settings, as
`carillon rehearse` does. Nothing is sent. The answer lasts until the rehearsal has ended, as server-sent events:
`progress` with the virtual seconds that have passed (`seconds`) and how many there will be (`of`), and at the end
either `result` with the figures, the same JSON as `carillon rehearse --json` writes, or `problem` with a sentence.
A caller that closes the connection stops the rehearsal. A process plays one at a time, in a child process with bounded
time, processor time and memory.
"""


class Rehearsals:
    """Plays one rehearsal at a time with the settings of this process."""

    def __init__(
        self, settings: bytes, channels: Mapping[str, Sequence[str]], bounds: RehearsalBounds | None = None
    ) -> None:
        """`settings` is JSON, which the child reads; `channels` names the providers of each."""
        self.channels = channels
        self._settings = settings
        self._bounds = bounds or RehearsalBounds()
        self._under_way = False

    async def rehearse(self, request: Request) -> Reply:
        question = request.json(RehearsalQuestion)
        self._refuse(question)
        if self._under_way:
            raise Problem("CONFLICT", UNDER_WAY)

        async def pour(outlet: Outlet) -> None:
            await self._pour(question, outlet)

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return Reply(200, pour, headers, "text/event-stream")

    def _refuse(self, question: RehearsalQuestion) -> None:
        """Say what is wrong with the question before a process is started for it."""
        if question.most > MOST_PLAYED:
            words = f"the console plays at most {MOST_PLAYED}; `carillon rehearse --most` plays more"
            raise Problem("VALIDATION_ERROR", words, details=[Detail(words, "most")])
        try:
            plan_of(question, self.channels)
        except ConfigurationError as error:
            option, _, words = str(error).partition(": ")
            raise Problem("VALIDATION_ERROR", words, details=[Detail(words, FIELDS.get(option))]) from None

    async def _pour(self, question: RehearsalQuestion, outlet: Outlet) -> None:
        # Of two that asked at the same moment the second gets here while the first plays.
        if self._under_way:
            await outlet.write(_event("problem", msgspec.json.encode(UNDER_WAY)))
            return
        self._under_way = True
        try:
            async with playing(self._settings, question, self._bounds) as child:
                telling = asyncio.create_task(self._tell(child.lines(), outlet))
                leaving = asyncio.create_task(outlet.over.wait())
                try:
                    await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
                    if telling.done():
                        telling.result()
                finally:
                    await ended(telling, leaving)
        except OSError as error:
            await outlet.write(_event("problem", msgspec.json.encode(f"No process could be started: {error}.")))
        finally:
            self._under_way = False

    async def _tell(self, lines: AsyncIterator[RehearsalLine], outlet: Outlet) -> None:
        async for line in lines:
            await outlet.write(_event(line.event, line.data))


def _event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def endpoints(rehearsals: Rehearsals) -> list[Endpoint]:
    """The one endpoint; its example names a provider of these settings."""
    channel, chain = next(iter(rehearsals.channels.items()))
    example = {"load": "20/min", "for": "20m", "mix": [channel], "outages": [f"{chain[0]} 5m at 5m"], "most": 1000}
    return [
        Endpoint(
            method="POST",
            path=PATH,
            call=rehearsals.rehearse,
            name="rehearse",
            summary="Play an outage in virtual time, and follow it",
            description=_DESCRIPTION,
            tag="Rehearsals",
            about=OPERATORS,
            body=RehearsalQuestion,
            body_examples={"outage": example},
            problems=("CONFLICT",),
            answers=(
                Answer(
                    status=200,
                    description="Server-sent events `progress`, `result` and `problem`.",
                    kind=Figures,
                    example=_example(chain[0]),
                    media_type="text/event-stream",
                ),
            ),
        )
    ]


def _example(provider: str) -> Figures:
    return Figures(
        scale=1,
        seconds=1265.0,
        accepted=399,
        delivered=399,
        late=61,
        failed_over=0,
        given_up=0,
        skipped=0,
        waiting=0,
        repeated=0,
        calls=460,
        lateness=Lateness(p50=0.2, p90=95.1, p99=281.4, longest=301.2),
        reasons={},
        by_provider={provider: 399},
        cost=0.0,
        costs={},
        peak=104,
        caught_up=12.5,
        breakers=[BreakerTime(provider=provider, begins=312.0, ends=605.0)],
        slices=[Slice(begins=0.0, accepted=3, delivered=3)],
    )
