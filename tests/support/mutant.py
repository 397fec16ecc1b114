"""The carillon command with exactly one guard switched off: `python -m tests.support.mutant NAME serve …`."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

import msgspec

from carillon import cli
from carillon.domain import decide
from carillon.domain.breaker import Admission
from carillon.domain.claims import Claim, Settlement
from carillon.domain.digests import DueDigest, digest_intent
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.intents import Intent
from carillon.domain.notifications import Acceptance
from carillon.intake import digests
from carillon.intake.accept import Intake
from carillon.ledger.postgres import ledger as postgres
from carillon.ledger.sqlite import ledger as sqlite
from carillon.ledger.statements import load
from carillon.outbound import worker
from carillon.outbound.admission import Admissions
from carillon.outbound.attempt import Attempts
from carillon.outbound.breakers import MemoryBreakers
from carillon.outbound.in_flight import InFlight
from carillon.outbound.leases import Leases
from carillon.outbound.targets import Targets
from carillon.system import Watchdog

Sql = dict[str, str]


def _reworded(change: Callable[[str, Sql], None]) -> None:
    """Change statements of both dialects as they are loaded."""

    def loaded(dialect: str, parts: frozenset[str] | None = None) -> Mapping[str, str]:
        statements = dict(load(dialect, parts))
        change(dialect, statements)
        return MappingProxyType(statements)

    for engine in (postgres, sqlite):
        vars(engine)["load"] = loaded


def _replace(statements: Sql, name: str, old: str, new: str) -> None:
    # A guard that was reworded must fail here, not pass as a mutant that changes nothing.
    if old not in statements[name]:
        raise RuntimeError(f"{name} has no {old!r} any more; mend the mutant")
    statements[name] = statements[name].replace(old, new)


def settle_without_token() -> None:
    def change(dialect: str, statements: Sql) -> None:
        if dialect == "postgres":
            _replace(
                statements,
                "settle",
                "AND (r.ticket = given.token OR r.claim_token = given.token OR given.verdict = 'finish')",
                "",
            )
        else:
            _replace(
                statements, "settle_judge", "WHEN r.ticket = :token OR r.claim_token = :token THEN", "WHEN TRUE THEN"
            )

    _reworded(change)


def extend_without_token() -> None:
    def change(dialect: str, statements: Sql) -> None:
        if dialect == "postgres":
            _replace(statements, "extend", "(r.ticket = held.token OR r.claim_token = held.token) AND", "")
            _replace(
                statements,
                "extend",
                "SELECT held.*,",
                "SELECT held.notification_id, held.route_id, held.token,"
                " (SELECT l.lease_id FROM leases l WHERE r.ticket = ANY (l.tickets)) AS lease,",
            )
        else:
            _replace(statements, "extend", "lease_id = :lease AND EXISTS (", "EXISTS (")
            _replace(statements, "extend", "AND ticket = :token ", "")

    _reworded(change)


def no_adoption() -> None:
    def change(dialect: str, statements: Sql) -> None:
        if dialect == "postgres":
            _replace(statements, "settle", "OR given.verdict = 'finish')", ")")
        else:
            _replace(statements, "settle_judge", "WHEN :verdict = 'finish' THEN", "WHEN FALSE THEN")

    _reworded(change)


def node_clock() -> None:
    """Leases and retries by the process's own clock, as far as it is wrong."""
    shift = {"+1h": 3600, "-1h": -3600}.get(os.environ.get("FAKETIME", ""), 0)

    def change(dialect: str, statements: Sql) -> None:
        if dialect == "postgres":
            for name in ("claim", "extend", "settle"):
                _replace(statements, name, "clock_timestamp()", f"(clock_timestamp() + interval '{shift} seconds')")

    _reworded(change)


def no_attempts_cap() -> None:
    gate = Attempts.gate

    def endless(self: Attempts, claim: Claim) -> Settlement | None:
        return gate(self, msgspec.structs.replace(claim, max_attempts=sys.maxsize))

    vars_of(Attempts, gate=endless)


def answer_before_commit() -> None:
    async def hasty(self: Any, intent: Intent) -> Acceptance:
        enrolment = await self.planned(intent)
        written = self._enrolments.add(enrolment)
        # Looked at, so that asyncio does not complain about an error nobody asked for.
        written.add_done_callback(lambda done: done.exception())
        queue = self._rules.lanes.by_rank(enrolment.routes[0].lane).queue_name
        return Acceptance(enrolment.notification.notification_id, queue)

    vars_of(Intake, accept=hasty)


def no_renewal() -> None:
    async def idle(_self: Leases) -> None:
        await asyncio.Event().wait()

    vars_of(Leases, run=idle)


def id_per_attempt() -> None:
    vars_of(Claim, idempotency_key=property(lambda claim: f"{claim.notification_id}/{claim.route_id}-{claim.attempt}"))


def no_drain() -> None:
    async def leave(_self: InFlight, _seconds: float) -> None:
        os._exit(0)

    def go_on(_self: worker.Worker, _within_seconds: float | None = None) -> None:
        """Take work until the very end: who rests while doors close has often finished by then."""

    vars_of(worker.Worker, stop_claiming=go_on)
    vars_of(InFlight, drain=leave)


def no_watchdog() -> None:
    async def sleep(_self: Watchdog) -> None:
        await asyncio.Event().wait()

    vars_of(Watchdog, run=sleep)


def no_breaker() -> None:
    async def go(_self: MemoryBreakers, _provider: str) -> Admission:
        return Admission.GO

    async def unknown(_self: MemoryBreakers) -> dict[str, Any]:
        return {}

    async def unheld(_self: Targets, _target: str) -> None:
        return None

    vars_of(MemoryBreakers, admit=go, states=unknown)
    vars_of(Targets, ask=unheld, held=lambda _self, _target: None, closed=lambda _self, _target: True)
    vars_of(Attempts, left_out=lambda _self, _provider: ())


def no_retry_after() -> None:
    async def as_before(_self: Targets, _target: str, _retry_after: float | None, **_more: Any) -> None:
        return None

    vars(decide)["clamp_retry_after"] = lambda _asked, wait, _policy: wait
    vars_of(Targets, slow=as_before)


def no_slow_start() -> None:
    begin = worker.Worker.__init__

    def bold(self: worker.Worker, **parts: Any) -> None:
        begin(self, **parts)
        self._in_flight.finished = sys.maxsize // 2

    vars_of(worker.Worker, __init__=bold)


def nothing_is_paused() -> None:
    """What operators pause is known, shown and logged, and keeps nothing back."""

    def go_on(self: Admissions, *_: Any) -> None:
        del self

    def every_lane(lanes: Any, _paused: Any) -> Any:
        return lanes

    paced = worker.Worker._paced  # noqa: SLF001 - the guard itself

    def at_its_pace(self: worker.Worker, provider: str, space: int) -> int:
        targets, self._targets = self._targets, None
        try:
            return paced(self, provider, space)
        finally:
            self._targets = targets

    vars_of(Admissions, _by_hand=go_on)
    vars_of(worker.Worker, _paced=at_its_pace)
    vars_of(worker, unpaused=every_lane)


async def answered(ledger: Any) -> None:
    """However long it takes: what an end without a deadline waits for."""
    while True:
        try:
            await ledger.check()
        except LedgerUnavailable:
            await asyncio.sleep(0.1)
        else:
            return


def digest_without_id() -> None:
    """Each telling of a digest is a notification of its own."""
    made = digest_intent

    def changed(due: DueDigest) -> Intent:
        return msgspec.structs.replace(made(due), notification_id=None)

    vars(digests)["digest_intent"] = changed


def vars_of(owner: type | ModuleType, **replaced: Any) -> None:
    for name, value in replaced.items():
        if not hasattr(owner, name):
            raise RuntimeError(f"{owner.__name__} has no {name} any more; mend the mutant")
        setattr(owner, name, value)


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant
    for mutant in (
        settle_without_token,
        extend_without_token,
        no_adoption,
        node_clock,
        no_attempts_cap,
        answer_before_commit,
        no_renewal,
        id_per_attempt,
        no_drain,
        no_watchdog,
        no_breaker,
        no_retry_after,
        no_slow_start,
        digest_without_id,
        nothing_is_paused,
    )
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
