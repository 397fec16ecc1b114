"""The processes of a simulated world: the real intake, worker, breakers and ledger statements, each with its life."""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from carillon.compose import from_settings
from carillon.compose.ledger import parts_needed
from carillon.compose.outbound import build_worker
from carillon.compose.program import supervise
from carillon.config.settings import Settings
from carillon.domain.claims import Claim, Settled, Settlement, Want
from carillon.domain.errors import CarillonError, LedgerUnavailable
from carillon.domain.intents import Intent
from carillon.domain.notifications import Acceptance, Enrolled, Enrolment
from carillon.domain.ports import Clock, Provider
from carillon.domain.synchronous import ClaimedEnrolment
from carillon.intake.accept import Intake
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.outbound.breakers import MemoryBreakers
from carillon.outbound.targets import Targets
from carillon.outbound.worker import Worker, WorkerClaimOnAccept
from carillon.rehearsal.stage import played_templates
from tests.simulation.ground import MemoryFile
from tests.simulation.scheduler import Mortal


class Holders:
    """Who holds which route, by what the ledger answered; one truth for all processes of a world."""

    def __init__(self) -> None:
        self._token: dict[str, int] = {}
        self._applied: set[int] = set()
        self.wrong: list[str] = []
        self.stale = self.adopted = 0

    def claimed(self, claims: Iterable[Claim]) -> None:
        """Routes got a new holder; its token is higher than that of every former one."""
        for claim in claims:
            key = claim.idempotency_key
            if claim.token <= self._token.get(key, 0):
                self.wrong.append(f"{key}: token {claim.token} after {self._token[key]}")
            self._token[key] = claim.token

    def holds(self, claim: Claim) -> bool:
        return self._token.get(claim.idempotency_key) == claim.token

    def settled(self, row: Mapping[str, Any], answer: Settled) -> None:
        """A settlement that was applied is its holder's, or the repeat of one that was."""
        self.stale += answer is Settled.STALE
        self.adopted += answer is Settled.ADOPTED
        if answer is Settled.APPLIED:
            key, token = f"{row['notification_id']}/{row['route_id']}", row["token"]
            if self._token.get(key) != token and token not in self._applied:
                self.wrong.append(f"{key}: {row['verdict']} of a former holder was applied")
            self._applied.add(token)


class ShakyLedger(SqliteLedger):
    """The real ledger, which now and then does not answer: before its work, or after it.

    What it did is noted inside its transactions: the process that asked may be dead or stopped when the answer comes.
    """

    dice: random.Random
    holders: Holders
    shaky = 0.0

    def _shakes(self) -> None:
        if self.shaky and self.dice.random() < self.shaky:
            raise LedgerUnavailable("simulated: no answer")

    async def enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        self._shakes()
        answers = await super().enrol(batch)
        self._shakes()
        return answers

    async def enrol_claimed(
        self, batch: Sequence[Enrolment], owner: str, seconds: float, caps: Mapping[int, int] | None = None
    ) -> list[ClaimedEnrolment]:
        self._shakes()
        answers = await super().enrol_claimed(batch, owner, seconds, caps)
        self._shakes()
        return answers

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:
        self._shakes()
        claims = await super().claim(wants, total, owner)
        self._shakes()
        return claims

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        if claims:
            self._shakes()
        return await super().extend(claims)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self._shakes()
        answers = await super().settle(settlements)
        self._shakes()
        return answers

    def _claim(self, *given: Any) -> list[Claim]:
        claims = super()._claim(*given)
        self.holders.claimed(claims)
        return claims

    def _claim_enrolled(self, *given: Any) -> ClaimedEnrolment:
        claimed = super()._claim_enrolled(*given)
        self.holders.claimed(claimed.claims)
        return claimed

    def _settle(self, connection: sqlite3.Connection, now: int, row: dict[str, Any]) -> Settled:
        answer = super()._settle(connection, now, row)
        self.holders.settled(row, answer)
        return answer


class Composition:
    """What every process of a world makes of its settings at its start: the same values, made once."""

    def __init__(self, settings: Settings, statements: Mapping[str, str]) -> None:
        self.settings = settings
        self.statements = statements
        self.parts = parts_needed(settings)
        self.chains = from_settings.chains(settings)
        self.templates = played_templates(settings, self.chains)
        self.rules = from_settings.plan_rules(settings, self.chains)
        self.endpoints = from_settings.endpoint_policies(settings)
        self.breakers = from_settings.breaker_policies(settings)


class Incarnation(Mortal):
    """One life of one process, from its start to its death."""

    def __init__(self, name: str, *, clock: Clock, observe: Callable[[Any], None]) -> None:
        super().__init__()
        self.name = name
        self._clock = clock
        self._observe = observe
        self.intake: Intake | None = None
        """None until it has started."""
        self._worker: Worker | None = None
        self._callers: dict[asyncio.Future[Acceptance | None], None] = {}
        """In the order in which they came: a set would have another one in each run."""

    async def live(
        self,
        made: Composition,
        connection: sqlite3.Connection,
        providers: Mapping[str, Provider],
        *,
        holders: Holders,
        dice: random.Random,
        shaky: float,
    ) -> None:
        """Start as a process does, and work until death."""
        settings, statements = made.settings, made.statements
        file = MemoryFile(connection, statements, self._clock.wall)
        await file.open()
        seconds = settings.ledger.lease_seconds
        ledger = ShakyLedger(file, statements, seconds, parts=made.parts)
        ledger.dice, ledger.holders, ledger.shaky = dice, holders, shaky
        worker = self._worker = self._built(made, ledger, providers)
        claims = WorkerClaimOnAccept(worker, ledger, self.name, seconds)
        self.intake = Intake(
            ledger=ledger,
            templates=made.templates,
            signal=ledger.signal,
            rules=made.rules,
            observer=self._observe,
            ids=lambda: f"made-by-{self.name}",
            clock=self._clock,
            claim_on_accept=claims if settings.work.claim_on_accept else None,
        )
        await supervise("worker", worker.run, self._observe)

    def _built(self, made: Composition, ledger: ShakyLedger, providers: Mapping[str, Provider]) -> Worker:
        """The worker as a process composes it, with breakers of its own."""
        clock, observe, settings = self._clock, self._observe, made.settings
        return build_worker(
            settings,
            backlog=ledger,
            signal=ledger.signal,
            providers=dict(providers),
            breakers=MemoryBreakers(made.breakers, clock, observe),
            chains=made.chains,
            clock=clock,
            observer=observe,
            owner=self.name,
            targets=Targets(ledger, made.endpoints, service=settings.service, clock=clock, observer=observe),
            preparing={},
        )

    def in_hand(self) -> list[str]:
        """The routes that it holds now: what a fault at this moment may repeat."""
        held = {} if self._worker is None else self._worker._leases._held  # noqa: SLF001 - what a look from outside sees
        return [claim.idempotency_key for claim, _ in held.values()]

    def ask(self, intent: Intent, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Acceptance | None]":
        """Accept as a door does; the caller gets None if the process refuses, or dies before its answer."""
        reply: asyncio.Future[Acceptance | None] = loop.create_future()
        self._callers[reply] = None
        loop.create_task(self._accepted(intent, reply), context=self.context.copy())
        return reply

    async def _accepted(self, intent: Intent, reply: "asyncio.Future[Acceptance | None]") -> None:
        answer = None
        if self.intake is not None:
            with suppress(CarillonError):
                answer = await self.intake.accept(intent)
        self._answer(reply, answer)

    def _answer(self, reply: "asyncio.Future[Acceptance | None]", answer: Acceptance | None) -> None:
        self._callers.pop(reply, None)
        if not reply.done():
            reply.set_result(answer)

    def die(self) -> None:
        super().die()
        for reply in list(self._callers):
            self._answer(reply, None)
