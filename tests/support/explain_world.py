"""A world under one controlled clock, in which what `explain` said can be compared with what then happens."""

import itertools
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec

from carillon.domain.breaker import BreakerPolicy, State
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.errors import BadIntent
from carillon.domain.explain import Explanation
from carillon.domain.intents import Intent
from carillon.domain.lanes import Lane, Lanes
from carillon.domain.notifications import TERMINAL, Template
from carillon.domain.outcomes import Outcome
from carillon.domain.people import PreferenceChange
from carillon.domain.policy import PolicyTable
from carillon.domain.ports import LookupLedger, ViewedBreakers
from carillon.domain.suppressions import Suppression, SuppressionTerms
from carillon.domain.synchronous import NotDelivered
from carillon.domain.templates import LocaleRules
from carillon.intake.accept import Intake, SynchronousIntake
from carillon.intake.explain import Explainer
from carillon.intake.people import PreferenceLookup, StoredPeople
from carillon.intake.plan import PlanRules
from carillon.intake.templates import FileTemplates
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.outbound.attempt import AttemptRules, Attempts
from carillon.outbound.breakers import MemoryBreakers
from carillon.outbound.leases import Leases
from carillon.outbound.settle import Settler
from carillon.outbound.synchronous import SynchronousDelivery, SynchronousRules
from carillon.outbound.worker import Worker, WorkerRules
from tests.support.clocks import ManualClock

CHAINS = {"email": ("smtp", "sendgrid", "acs"), "sms": ("twilio", "sns")}
LANES = Lanes(
    {
        "priority": Lane(rank=1, queue_name="priority", max_attempts=3),
        "standard": Lane(rank=2, queue_name="standard"),
        "bulk": Lane(rank=3, queue_name="bulk"),
        "synchronous": Lane(rank=9, queue_name="", timeout_seconds=2.0),
    }
)
TEMPLATES = FileTemplates(
    {
        ("code", channel, "en-US"): Template(code="code", channel=channel, locale="en-US", text="Hi")
        for channel in CHAINS
    }
)
LEASE_SECONDS = 30.0
_TICK_MS = 2.0

Script = Callable[[str, int, str], Outcome]
"""The outcome of a route's attempt at a provider."""
Call = tuple[str, int, float]
"""Provider, attempt, Unix milliseconds."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One request and everything that decides about it."""

    intent: Intent
    policies: PolicyTable
    breaker: BreakerPolicy
    script: Script
    dice: float
    wishes: Mapping[str, PreferenceChange] = {}
    silences: tuple[Suppression, ...] = ()
    terms: SuppressionTerms = SuppressionTerms()
    failures: Mapping[str, int] = {}
    """How often each provider has failed in a row before."""
    since: float = 0.0
    """How long ago it did."""
    probed: str | None = None
    """A provider that another worker probes just now, if its breaker lets it."""
    repeats: bool = False
    """The same request was accepted before, under its key."""


class Truth(msgspec.Struct):
    """What happened."""

    code: str | None = None
    """Why the request was rejected."""
    replayed: bool = False
    ends: dict[str, str] = {}
    calls: dict[str, list[Call]] = {}


class _Vendor:
    """Answers by the script and remembers each call with its time."""

    def __init__(self, name: str, script: Script, clock: ManualClock, calls: dict[str, list[Call]]) -> None:
        self._name, self._script, self._clock, self._calls = name, script, clock, calls

    async def send(self, dispatch: Dispatch) -> Outcome:
        claim = dispatch.claim
        call = (self._name, claim.attempt, self._clock.now * 1000)
        self._calls.setdefault(claim.route_id, []).append(call)
        return self._script(claim.route_id, claim.attempt, self._name)

    async def aclose(self) -> None:
        """Nothing is held."""


class _AtOnce(ThreadPoolExecutor):
    """Works in the caller's thread: in a world where one thing happens at a time, changing threads only costs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future carries it to the caller
            done.set_exception(error)
        return done


class World:
    """One SQLite ledger whose clock the test owns; cases follow one another in it."""

    def __init__(self, ledger: SqliteLedger, clock: ManualClock) -> None:
        self.ledger = ledger
        self.clock = clock
        self._ids = itertools.count(1)

    @classmethod
    async def open(cls, path: str) -> "World":
        ledger = await SqliteLedger.open(path, lease_seconds=LEASE_SECONDS)
        await ledger.migrate()
        clock = ManualClock(20 * 86_400.0)

        def own(connection: Any, _now: int = 0) -> None:
            connection.create_function("julianday", -1, lambda *_: clock.now / 86_400 + 2440587.5)
            if not connection.in_transaction:
                connection.execute("PRAGMA synchronous = OFF")

        file = ledger._file  # noqa: SLF001 - the only way to a clock of our own
        for executor in (file._writing, file._reading):  # noqa: SLF001 - as above
            executor.shutdown()
        file._writing = file._reading = _AtOnce()  # noqa: SLF001 - as above
        await file.alone(own)
        await file.read(own)
        return cls(ledger, clock)

    async def changes(self) -> int:
        """How many rows the ledger has written in all."""
        return await self.ledger._file.alone(lambda connection: connection.total_changes)  # noqa: SLF001 - as above

    async def prepare(self, case: Case) -> "Played":
        """What was before the request: preferences, suppressions, breakers, an earlier request."""
        tenant = case.intent.tenant_id
        for user, wish in case.wishes.items():
            await self.ledger.change_preferences(tenant, user, wish)
        if case.silences:
            await self.ledger.suppress(case.silences)
        played = Played(self, case, lambda: f"n-{next(self._ids):06}")
        for provider, number in case.failures.items():
            for _ in range(number):
                await played.breakers.record(provider, ok=False)
        self.clock.now = round(self.clock.now + case.since, 3)
        if case.probed is not None:
            await played.breakers.admit(case.probed)
        if case.repeats:
            with suppress(BadIntent):
                await played.intake.accept(case.intent)
                await played.work()
                played.calls.clear()
        return played


class Played:
    """One case: explained, then carried out by the real intake, ledger, worker and attempts."""

    def __init__(self, world: World, case: Case, ids: Callable[[], str]) -> None:
        self._world, self._case = world, case
        self._ids = ids
        self.calls: dict[str, list[Call]] = {}
        ledger, clock = world.ledger, world.clock
        self.breakers = MemoryBreakers({"*": case.breaker}, clock, lambda _: None)
        self.rules = PlanRules(
            channels=CHAINS, policies=case.policies, lanes=LANES, locale=LocaleRules("en-US", "error")
        )
        self.intake = self.intake_with(PreferenceLookup(StoredPeople(ledger), clock, quiet_hours=True))
        self.planner: Intake = self.intake
        """What `explain` plans by, and the breakers it reads; a control puts something false here."""
        self.viewed: ViewedBreakers = self.breakers
        self.looked_up: LookupLedger = ledger
        self.terms = case.terms
        names = [name for chain in CHAINS.values() for name in chain]
        self._providers = {name: _Vendor(name, case.script, clock, self.calls) for name in names}

    def intake_with(self, add_preferences: PreferenceLookup | None) -> Intake:
        ledger = self._world.ledger
        return Intake(
            ledger=ledger,
            templates=TEMPLATES,
            signal=ledger.signal,
            rules=self.rules,
            observer=lambda _: None,
            ids=self._ids,
            clock=self._world.clock,
            add_preferences=add_preferences,
        )

    async def explained(self) -> Explanation:
        """Ask first, with the outcomes and the dice that will be."""

        def imagine(claim: Claim, provider: str) -> Outcome:
            return self._case.script(claim.route_id, claim.attempt, provider)

        dice = (self._case.dice, self._case.dice)
        world = self._world
        explainer = Explainer(
            self.planner,
            self.looked_up,
            self.viewed,
            self.rules,
            world.clock,
            imagine=imagine,
            dice=dice,
            terms=self.terms,
        )
        before = await world.changes()
        said = await explainer.explain(self._case.intent, {})
        assert await world.changes() == before, "explain wrote something"
        return said

    async def happened(self) -> Truth:
        """Then let it happen."""
        intent, truth = self._case.intent, Truth(calls=self.calls)
        try:
            if intent.synchronous:
                notification_id = await self._deliver(intent)
            else:
                acceptance = await self.intake.accept(intent)
                notification_id, truth.replayed = acceptance.notification_id, acceptance.replayed
        except BadIntent as error:
            truth.code = error.code
            return truth
        if not intent.synchronous:
            await self.work()
        story = await self._world.ledger.story(notification_id, None)
        assert story is not None
        truth.ends = {route["route_id"]: str(route["status"]) for route in story.routes}
        return truth

    async def work(self) -> None:
        """Run the real worker until every route has ended; time goes on only while nothing can be claimed."""
        case, ledger, clock = self._case, self._world.ledger, self._world.clock
        leases = Leases(ledger, clock, lambda _: None, LEASE_SECONDS)
        signal = _Time(self)
        worker = Worker(
            backlog=ledger,
            signal=signal,
            attempts=Attempts(
                providers=self._providers,
                breakers=self.breakers,
                leases=leases,
                rules=AttemptRules(CHAINS, case.policies, LANES, suppressions=case.terms),
                clock=clock,
                dice=lambda: case.dice,
            ),
            settler=Settler(ledger, lambda _: None),
            leases=leases,
            breakers=self.breakers,
            rules=WorkerRules(lanes=LANES, chains=CHAINS, skip_open=case.policies.all_defer, concurrency=1),
            clock=clock,
            observer=lambda _: None,
            owner="test",
        )
        signal.worker = worker
        await worker.run()

    async def next_moment(self) -> float | None:
        """When something can happen again; None when every route has ended."""

        def read(connection: Any, _now: int) -> list[tuple[int, str]]:
            return list(
                map(tuple, connection.execute("SELECT next_attempt_at, provider FROM routes WHERE next_attempt_at > 0"))
            )

        clock = self._world.clock
        moments: list[float] = []
        views = await self.breakers.views(self._providers)
        opens = [
            math.ceil((clock.now + view.breaker.opened_at + view.policy.open_seconds) * 1000) / 1000
            for view in views.values()
            if view.breaker.state is State.OPEN
        ]
        for due_ms, _ in await self._world.ledger._file.read(read):  # noqa: SLF001 - a side entrance for the test
            due = due_ms / 1000
            # What is due and was not claimed waits for a breaker.
            moments += [due] if due > clock.now else [at for at in opens if at > clock.now]
        return min(moments, default=None)

    async def _deliver(self, intent: Intent) -> str:
        ledger, clock = self._world.ledger, self._world.clock
        intake = SynchronousIntake(self.intake, ledger, lambda _: None, owner="test", seconds=LEASE_SECONDS)
        synchronous = SynchronousDelivery(
            enrol=intake.enrol,
            providers=self._providers,
            breakers=self.breakers,
            settler=Settler(ledger, lambda _: None),
            stories=ledger,
            rules=SynchronousRules(chains=CHAINS, seconds=2.0, policies=self._case.policies),
            clock=clock,
            ids=self._ids,
        )
        answer = await synchronous.deliver(intent, synchronous.began())
        await synchronous.drain(1.0)
        assert not isinstance(answer, NotDelivered) or answer.code == "DELIVERY_FAILED"
        return answer.notification_id


class _Time:
    """The worker's signal: it is waited for when nothing could be claimed, and then time goes on."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self.worker: Worker | None = None

    def ring(self) -> None:
        """Nothing waits for a ring."""

    async def wait(self, timeout_seconds: float) -> None:
        del timeout_seconds
        assert self.worker is not None
        moment = await self._played.next_moment()
        if moment is None:
            self.worker.stop()
        else:
            self._played._world.clock.now = moment  # noqa: SLF001 - one piece of the same world


def differences(said: Explanation, truth: Truth) -> list[str]:
    """Everything in which the explanation and the truth differ."""
    if said.outcome == "rejected" or truth.code is not None:
        return [] if said.code == truth.code else [f"rejected: said {said.code}, was {truth.code}"]
    if said.outcome == "replayed" or truth.replayed:
        return [] if truth.replayed == (said.outcome == "replayed") and not truth.calls else ["replayed"]
    found: list[str] = []
    if {route.route_id for route in said.routes} != set(truth.ends):
        found.append(f"routes: said {[route.route_id for route in said.routes]}, were {list(truth.ends)}")
    for route in said.routes:
        expected = [(row["provider"], row["attempt"], row["notBefore"]) for row in route.attempts]
        calls = truth.calls.get(route.route_id, [])
        if route.ends is None:
            calls = calls[: len(expected)]
        elif route.ends != truth.ends.get(route.route_id):
            found.append(f"{route.route_id} ends: said {route.ends}, was {truth.ends.get(route.route_id)}")
        same = len(calls) == len(expected) and all(
            one[:2] == other[:2] and abs(one[2] - other[2]) <= _TICK_MS
            for one, other in zip(expected, calls, strict=True)
        )
        if not same:
            found.append(f"{route.route_id} attempts: said {expected}, were {calls}")
    assert all(status in TERMINAL for status in truth.ends.values())
    return found
