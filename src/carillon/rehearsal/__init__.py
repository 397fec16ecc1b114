"""Rehearsal: hours of load and outages in virtual time, through the real policies, breakers, lanes and failover."""

import asyncio
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from carillon.compose import from_settings
from carillon.compose.program import Program
from carillon.config.settings import Settings
from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.domain.intents import Intent, Recipient
from carillon.rehearsal.figures import SLICES, Tally
from carillon.rehearsal.stage import PLAYED, RehearsedIntake, RehearsedProviders, rehearsed, stage
from carillon.rehearsal.virtual_time import VirtualClock, VirtualLoop
from carillon.system import new_id
from carillon.upkeep.rehearsals.figures import Figures
from carillon.upkeep.rehearsals.plan import RehearsalPlan, Traffic

BEGINS = 1_767_225_600.0
"""Midnight, 1 January 2026, UTC: the same day in every rehearsal."""
LOOK_SECONDS = 5.0
TICKS, SHORTEST_TICK, LONGEST_TICK = 4000, 0.1, 5.0
"""Into how many ticks the time of the load is divided, and how long a tick is at least and at most."""
ADDRESSES = {
    "email": "rehearsal-{}@example.org",
    "sms": "+1202555{:04d}",
    "webhook": "https://rehearsal.example.org/{}",
}
_SWITCH = "OTEL_SDK_DISABLED"
Progress = Callable[[float, float], None]
"""Gets the virtual seconds that have passed, and how many there will be at least."""


def rehearse(settings: Settings, plan: RehearsalPlan, progress: Progress = lambda _now, _of: None) -> Figures:
    """Play the plan with these settings; the same plan and the same settings give the same figures."""
    # The engine's dice are the process's own; a rehearsal that is played again must throw the same.
    random.seed(plan.seed)
    made = tempfile.TemporaryDirectory(prefix="carillon-rehearsal-")
    with _telling_nobody(), made as folder, closing(VirtualLoop()) as loop:
        played = rehearsed(settings, plan, f"sqlite:///{Path(folder) / 'ledger.db'}")
        return loop.run_until_complete(_Rehearsal(loop, played, plan, progress).run())


@contextmanager
def _telling_nobody() -> Iterator[None]:
    """Export no metrics and no spans: a collector would take the played outage for a real one, and raise its alarms."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SWITCH]
        else:
            os.environ[_SWITCH] = before


class _Rehearsal:
    def __init__(self, loop: VirtualLoop, settings: Settings, plan: RehearsalPlan, progress: Progress) -> None:
        self._loop = loop
        self._clock = VirtualClock(loop, BEGINS)
        self._settings = settings
        self._plan = plan
        self._progress = progress
        self._dice = random.Random(plan.seed)  # noqa: S311 - no secret
        self._tally = Tally(plan, {}, self._clock.monotonic(), self._slice_seconds())
        self._pending: set[asyncio.Task[None]] = set()
        self._refusal: CarillonError | None = None

    def _slice_seconds(self) -> float:
        ends = max([self._plan.seconds, *(outage.ends for outage in self._plan.outages)])
        return max(1.0, ends / SLICES)

    async def run(self) -> Figures:
        def watch(event: object) -> None:
            self._tally.now = self._clock.monotonic()
            self._tally(event)  # type: ignore[arg-type]

        program = Program(
            self._settings,
            embedded=True,
            parts=lambda process: stage(process, self._plan, watch, self._due_in),
            clock=self._clock,
        )
        stop, ready = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(program.run(stop, lambda _address: ready.set()))
        await ready.wait()
        await self._arrive(program.part(RehearsedIntake))
        await self._settled()
        if self._refusal is not None:
            stop.set()
            await running
            raise ConfigurationError(f"these settings refuse what a rehearsal sends: {self._refusal}")
        self._tally.now = self._clock.monotonic()
        asked = {name for traffic in self._plan.traffic for name in self._settings.channels[traffic.channel]}
        vendors = {name: one for name, one in program.part(RehearsedProviders).vendors.items() if name in asked}
        figures = self._tally.figures(
            {name: vendor.accepted for name, vendor in vendors.items()},
            sum(vendor.calls for vendor in vendors.values()),
        )
        stop.set()
        await running
        return figures

    def _due_in(self) -> float | None:
        self._tally.now = self._clock.monotonic()
        return self._tally.due_in()

    async def _arrive(self, part: RehearsedIntake) -> None:
        """Accept notifications as independent callers send them; those of one tick arrive together."""
        plan = self._plan
        limits = self._limits()
        shares = [traffic.share for traffic in plan.traffic]
        tick = min(LONGEST_TICK, max(SHORTEST_TICK, plan.seconds / TICKS))
        begins = self._clock.monotonic()
        at = self._dice.expovariate(plan.per_second / plan.scale)
        for number in range(1, math.ceil(plan.seconds / tick) + 1):
            if self._refusal is not None:
                return
            await self._clock.sleep(begins + number * tick - self._clock.monotonic())
            while at < min(number * tick, plan.seconds):
                (traffic,) = self._dice.choices(plan.traffic, shares)
                self._accept(part, traffic, limits)
                at += self._dice.expovariate(plan.per_second / plan.scale)
            self._progress(number * tick, plan.seconds)

    def _accept(self, part: RehearsedIntake, traffic: Traffic, limits: "dict[tuple[bool, int], float]") -> None:
        name = new_id()
        self._tally.now = self._clock.monotonic()
        self._tally.expect(name, limits[traffic.bulk, int(traffic.priority)])
        task = asyncio.create_task(self._accepted(part, self._intent(traffic, name)))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _accepted(self, part: RehearsedIntake, intent: Intent) -> None:
        try:
            await part.intake.accept(intent)
        except CarillonError as error:
            self._refusal = self._refusal or error

    def _intent(self, traffic: Traffic, name: str) -> Intent:
        number = self._dice.randrange(10_000)
        address = ADDRESSES.get(traffic.channel, "rehearsal-{}").format(number)
        return Intent(
            notification_type=PLAYED,
            producer="rehearsal",
            notification_id=name,
            recipients=(Recipient(ref=f"user:{number}", user_id=str(number), addresses={traffic.channel: address}),),
            channels=(traffic.channel,),
            payload={},
            content=name,
            priority=traffic.priority,
            bulk=traffic.bulk,
        )

    def _limits(self) -> "dict[tuple[bool, int], float]":
        """After how many seconds a message is late: the lane's own word."""
        lanes = from_settings.lanes(self._settings).by_name
        found = {}
        for traffic in self._plan.traffic:
            name = "bulk" if traffic.bulk else "priority" if int(traffic.priority) == 1 else "standard"
            found[traffic.bulk, int(traffic.priority)] = lanes[name].max_latency_seconds or 60.0
        return found

    async def _settled(self) -> None:
        """Wait until every notification has ended, at most as long as the plan says."""
        until = self._clock.monotonic() + self._plan.patience
        ends = max((outage.ends for outage in self._plan.outages), default=0.0)
        while self._refusal is None and self._clock.monotonic() < until:
            if not self._tally.open and self._clock.monotonic() >= ends:
                return
            await self._clock.sleep(LOOK_SECONDS)
            self._progress(self._plan.seconds, self._plan.seconds)
