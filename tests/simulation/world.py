"""One simulated world: a seed draws its faults, lets processes live and die under load, and checks the promises."""

import asyncio
import gc
import math
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from contextvars import copy_context

import msgspec

from carillon.compose.ledger import parts_needed
from carillon.domain.claims import Dispatch
from carillon.domain.events import Event, LeaseLost
from carillon.domain.intents import Intent, Priority, Recipient
from carillon.domain.timing import Timing
from carillon.ledger import statements as sql
from carillon.rehearsal import BEGINS
from carillon.rehearsal.stage import PLAYED
from carillon.rehearsal.virtual_time import VirtualClock
from tests.simulation.checker import Found, check
from tests.simulation.fleet import Composition, Holders, Incarnation
from tests.simulation.ground import LEASE_SECONDS, new_ledger, settings_of
from tests.simulation.points import suspended
from tests.simulation.scheduler import Mortal, SeededLoop
from tests.simulation.swarm import Swarm, drawn
from tests.simulation.vendor import BatchVendor, StartingVendor, Vendor, VendorLedger

PATIENCE_SECONDS = 20_000.0
"""So long after the last fault everything has ended, or something hangs."""
LOOK_SECONDS = 20.0
AT_ONCE = 40
MILLISECOND = 0.001


class Simulated(msgspec.Struct, kw_only=True):
    """What a world showed."""

    seed: int
    deliveries: int
    calls: int
    crashes: int
    stops: int
    repeats: int
    in_flight: int
    """Routes in the hands of processes when a fault met them: they may be repeated."""
    silent: int
    """Calls that a vendor accepted without an answer: they may be repeated too."""
    stale: int
    adopted: int
    leases_lost: int
    dead_letters: int
    turns: int
    virtual_seconds: float
    digest: str
    wrong: list[str]


class World:
    """Processes, callers and vendors on one virtual clock."""

    def __init__(
        self,
        seed: int,
        deliveries: int,
        crashes: int,
        statements: Mapping[str, str] | None = None,
        swarm: Swarm | None = None,
    ) -> None:
        """`swarm` takes the place of the faults that the seed would draw."""
        self._seed = seed
        self._dice = random.Random(f"world {seed}")
        self._deliveries = deliveries
        swarm = self.swarm = swarm or drawn(self._dice, deliveries, crashes)
        settings = settings_of(swarm.first_claims, swarm.concurrency, claim_on_accept=swarm.claim_on_accept)
        given = statements or sql.load("sqlite", frozenset(parts_needed(settings)))
        self._made = Composition(settings, {name: sql.fixed(text) for name, text in given.items()})
        self._ledger = new_ledger()
        self._loop = SeededLoop(self._dice, thread_seconds=self.swarm.thread_seconds, dies=self._dies)
        # What the dead leave behind is no news.
        self._loop.set_exception_handler(lambda _loop, _context: None)
        self._clock = VirtualClock(self._loop, BEGINS)
        self._begins = self._loop.time()
        self._holders, self._vendors_ledger = Holders(), VendorLedger()
        self._fleet: list[Incarnation] = []
        self._dead: list[Incarnation] = []
        self._lives = 0
        self._faults: Counter[str] = Counter()
        self._lost = 0
        self._patience = PATIENCE_SECONDS
        self._allowed: Counter[str] = Counter()
        """By route: how many faults met it in somebody's hands."""
        self._answers: dict[str, set[str]] = {}
        """By idempotency key: the ids that callers were told."""
        self._windows: dict[str, tuple[float, float]] = {}
        """By notification: from when to when it may be sent, where that is limited."""
        self._calls = 0
        self._next_crash = self._next_stop = 1
        self._providers: dict[str, Vendor] = {}

    def hurry(self, turns: int, patience: float) -> None:
        """Give up earlier than usual, where worlds are expected to break."""
        self._loop.most_turns, self._patience = turns, patience

    def run(self) -> Simulated:
        """Let everything happen, and look at what is left."""
        # The engine's dice are the process's own.
        random.seed(f"engine {self._seed}")
        with closing(self._ledger), closing(self._loop):
            self._open_vendors()
            # A collection would end coroutines of the dead at a moment of its own, in the middle of the living.
            gc.disable()
            try:
                self._loop.run_until_complete(self._happens())
            finally:
                self._clear()
            found = check(self._ledger, self._answers, self._vendors_ledger, self._allowed)
        return self._simulated(found)

    def _clear(self) -> None:
        for one in self._fleet:
            one.die()
        for one in [*self._dead, *self._fleet]:
            one.clear()
        gc.enable()

    def _simulated(self, found: Found) -> Simulated:
        ledger, holders = self._vendors_ledger, self._holders
        ledger.digest.update(repr(found.rows).encode())
        return Simulated(
            seed=self._seed,
            deliveries=found.routes,
            calls=ledger.calls,
            crashes=self._faults["crash"],
            stops=self._faults["stop"],
            repeats=found.repeats,
            in_flight=self._allowed.total(),
            silent=ledger.silent.total(),
            stale=holders.stale,
            adopted=holders.adopted,
            leases_lost=self._lost,
            dead_letters=found.dead_letters,
            turns=self._loop.turns,
            virtual_seconds=self._loop.time(),
            digest=ledger.digest.hexdigest(),
            wrong=[*found.wrong, *holders.wrong, *ledger.wrong],
        )

    def _open_vendors(self) -> None:
        kinds = {"first": StartingVendor, "second": Vendor, "batches": BatchVendor}
        for name, kind in kinds.items():
            temper = self.swarm.tempers[name]
            self._providers[name] = kind(self._vendors_ledger, temper, self._dice, self._may, self._called)

    def _may(self, dispatch: Dispatch) -> str | None:
        """What is wrong with a call: who no longer holds the route must not make it, nor before or after its time."""
        claim = dispatch.claim
        if not self._holders.holds(claim):
            return "sent by one who no longer holds it"
        window = self._windows.get(claim.notification_id)
        if window is not None and not window[0] - MILLISECOND <= self._clock.wall() <= window[1] + MILLISECOND:
            return f"sent at {self._clock.wall():.3f}, outside of {window}"
        return None

    def _called(self) -> None:
        """A vendor was called: every so many calls a process gets its fate, at one of its next steps."""
        self._calls += 1
        swarm = self.swarm
        if self._calls >= self._next_crash and self._faults["planned"] < swarm.crashes:
            self._faults["planned"] += 1
            self._next_crash += max(1, self._deliveries // max(1, swarm.crashes))
            doomed = [one for one in self._fleet if not one.dead and one.dies_at is None]
            if doomed:
                one = self._dice.choice(doomed)
                one.dies_at = one.steps + self._dice.randint(1, 60)
            else:
                self._faults["planned"] -= 1
        if swarm.stops and self._calls >= self._next_stop and self._faults["stop"] < swarm.stops:
            self._next_stop += max(1, self._deliveries // swarm.stops)
            self._loop.call_later(self._dice.random(), self._stop, context=_NOBODY.copy())

    def _stop(self) -> None:
        """As SIGSTOP, for longer than a lease; then the process goes on as if nothing had happened."""
        running = [one for one in self._fleet if not one.dead and one.stopped is None and one.intake is not None]
        if not running:
            return
        self._faults["stop"] += 1
        one = self._dice.choice(running)
        self._allowed.update(one.in_hand())
        one.stopped = []
        seconds = LEASE_SECONDS * self._dice.uniform(0.5, 4.0)
        self._loop.call_later(seconds, self._resume, one, context=_NOBODY.copy())

    def _resume(self, one: Incarnation) -> None:
        if not one.dead:
            self._loop.resume(one)

    def kill(self, mortal: Mortal) -> None:
        """Let a process die in the middle of its step."""
        self._dies(mortal)

    def hang(self, mortal: Mortal) -> None:
        """Stop a process in the middle of its step, for longer than a lease; everything else goes on meanwhile."""
        self.blame(mortal)
        self._faults["stop"] += 1
        mortal.stopped = []
        until = self._loop.time() + 2 * LEASE_SECONDS
        self._loop.call_at(until, lambda: None, context=_NOBODY.copy())
        with suspended():
            while self._loop.time() < until:
                self._loop._run_once()  # noqa: SLF001 - the loop inside the step of one process
        if not mortal.dead:
            self._loop.resume(mortal)

    def blame(self, mortal: Mortal) -> None:
        """What it holds now may be repeated, because a fault meets it."""
        assert isinstance(mortal, Incarnation)
        self._allowed.update(mortal.in_hand())

    def _dies(self, mortal: Mortal) -> None:
        """As kill -9: what it scheduled never runs, and another one starts a little later."""
        assert isinstance(mortal, Incarnation)
        self._faults["crash"] += 1
        self._allowed.update(mortal.in_hand())
        mortal.die()
        self._fleet.remove(mortal)
        self._dead.append(mortal)
        self._loop.call_later(self._dice.uniform(0.01, 5.0), self._start, context=_NOBODY.copy())

    def _start(self) -> None:
        self._lives += 1
        one = Incarnation(f"process-{self._lives}", clock=self._clock, observe=self._observe)
        self._fleet.append(one)
        life = one.live(
            self._made,
            self._ledger,
            self._providers,
            holders=self._holders,
            dice=self._dice,
            shaky=self.swarm.shaky,
        )
        self._loop.create_task(life, context=one.context.copy())

    def _observe(self, event: Event) -> None:
        self._lost += isinstance(event, LeaseLost)

    async def _happens(self) -> None:
        for _ in range(self.swarm.processes):
            self._start()
        await self._produce()
        until = self._loop.time() + self._patience
        while self._loop.time() < until and self._ledger.execute(_OPEN).fetchone()[0]:  # noqa: ASYNC110 - another's work
            await asyncio.sleep(LOOK_SECONDS)

    async def _produce(self) -> None:
        """Callers send until there are enough deliveries, many at once: what comes together shares commits."""
        made = number = 0
        while made < self._deliveries:
            sending: list[asyncio.Task[None]] = []
            while made < self._deliveries and len(sending) < AT_ONCE:
                people = min(self._dice.choice(self.swarm.people), self._deliveries - made)
                made, number = made + people, number + 1
                sending.append(asyncio.create_task(self._send(self._intent(number, people))))
            await asyncio.wait(sending)

    def _intent(self, number: int, people: int) -> Intent:
        dice, now = self._dice, self._clock.wall()
        channel = "push" if dice.random() < 0.5 else "sms"
        name, scheduled, timing = f"n-{number}", None, Timing()
        if dice.random() < self.swarm.timed:
            moment = round((now + dice.uniform(0.1, 300.0)) * 1000)
            if dice.random() < 0.5:
                scheduled, self._windows[name] = moment, (moment / 1000, math.inf)
            else:
                timing, self._windows[name] = Timing(expires_at_ms=moment), (0.0, moment / 1000)
        return Intent(
            notification_type=PLAYED,
            producer="world",
            notification_id=name,
            recipients=tuple(
                Recipient(ref=f"user:{at}", user_id=str(at), addresses={channel: f"+1202555{at:04d}"})
                for at in range(people)
            ),
            channels=(channel,),
            payload={},
            content=name,
            idempotency_key=f"key-{number}",
            priority=dice.choice([Priority.HIGH, Priority.NORMAL]),
            bulk=dice.random() < 0.2,
            scheduled_for_ms=scheduled,
            timing=timing,
        )

    async def _send(self, intent: Intent) -> None:
        """Ask until somebody answers; now and then once more, as a caller does that forgot the answer."""
        told = self._answers.setdefault(str(intent.idempotency_key), set())
        wanted = 2 if self._dice.random() < self.swarm.repeats else 1
        while wanted:
            running = [one for one in self._fleet if one.intake is not None and one.stopped is None]
            reply = await self._dice.choice(running).ask(intent, self._loop) if running else None
            if reply is None:
                await asyncio.sleep(self._dice.uniform(0.05, 1.0))
            else:
                told.add(reply.notification_id)
                wanted -= 1


_OPEN = "SELECT EXISTS (SELECT 1 FROM routes WHERE next_attempt_at IS NOT NULL)"


_NOBODY = copy_context()
"""The context of the world itself: a fate is nobody's own, and happens to the dead and the stopped too."""
