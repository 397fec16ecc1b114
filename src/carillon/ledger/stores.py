"""The stores of both engines joined into one class, and the breakers that all processes on one ledger share."""

import msgspec

from carillon.domain.breaker import Breaker, BreakerPolicy, BreakerStep, BreakerVerb, State, step
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.targets import Change, T, TargetState, changed, read_state, written
from carillon.ledger.admin import AdminStore, AuditStore, KeyStore
from carillon.ledger.chains import OverdueStore
from carillon.ledger.digests import DigestStore
from carillon.ledger.jobs import JobStore
from carillon.ledger.outbox import OutboxStore
from carillon.ledger.people import PreferenceStore, SuppressionStore
from carillon.ledger.replay import ReplayStore
from carillon.ledger.resealing import SealKeyStore
from carillon.ledger.rights import RightsStore
from carillon.ledger.skipped import SkippedStore
from carillon.ledger.streams import StreamStore, TicketStore
from carillon.ledger.templates import TemplateStore
from carillon.ledger.throttles import ThrottleStore
from carillon.ledger.upkeep import HistoryStore, UpkeepStore
from carillon.ledger.waiting import WaitingStore


class BreakerStore:
    """Satisfies BreakerLedger."""

    engine: Engine

    async def breaker_step(self, service: str, provider: str, verb: BreakerVerb, policy: BreakerPolicy) -> BreakerStep:
        key = {"service": service, "provider": provider}
        said = _unlocked(await self.engine.one("breaker_look", key), policy, verb)
        if said is not None:
            return said

        def steps() -> Steps[BreakerStep]:
            (row,) = yield Ask("breaker_lock", key)
            before = _breaker(row)
            after, said = step(before, policy, verb, row["now"])
            if after != before:
                yield Ask("breaker_keep", {**key, **_breaker_columns(after)})
            return said

        # Not repeated: a repeat after a lost answer could count a failure twice, which is worse than a missing count.
        return await self.engine.change(steps, repeatable=False, pool="settlements")


class TargetRows:
    """Satisfies TargetStore."""

    engine: Engine

    async def target_states(self, service: str) -> tuple[float, dict[str, TargetState]]:
        rows = await self.engine.rows("target_states", {"service": service})
        states = {row["target"]: read_state(row["state_json"]) for row in rows if row["target"] is not None}
        return float(rows[-1]["now"]), states

    async def change_target(self, service: str, target: str, change: Change[T]) -> tuple[float, TargetState, T]:
        key = {"service": service, "target": target}

        def steps() -> Steps[tuple[float, TargetState, T]]:
            (row,) = yield Ask("target_lock", key)
            before, now = read_state(row["state_json"]), float(row["now"])
            after, answer = changed(before, now, change)
            if after.quiet(now):
                yield Ask("target_forget", key)
            elif after != before:
                yield Ask("target_keep", {**key, "state_json": written(after)})
            return now, after, answer

        # Not repeated, as a breaker's step is not: a failure must not be counted twice.
        return await self.engine.change(steps, repeatable=False, pool="settlements")


def _unlocked(row: Row | None, policy: BreakerPolicy, verb: BreakerVerb) -> BreakerStep | None:
    """The answer if the step changes nothing; None if it must run under the lock."""
    breaker, now = (Breaker(), 0.0) if row is None else (_breaker(row), float(row["now"]))
    after, said = step(breaker, policy, verb, now)
    return said if after == breaker else None


def _breaker(row: Row) -> Breaker:
    return Breaker(
        state=State(row["state"]),
        failures=row["failures"],
        successes=row["successes"],
        opened_at=row["opened_at"] or 0.0,
        probes=tuple(msgspec.json.decode(row["probes_json"], type=list[float])),
    )


def _breaker_columns(breaker: Breaker) -> Row:
    return {
        "state": str(breaker.state),
        "failures": breaker.failures,
        "successes": breaker.successes,
        "opened_at": breaker.opened_at or None,
        "probes_json": msgspec.json.encode(breaker.probes).decode(),
    }


class Stores(
    AdminStore,
    AuditStore,
    BreakerStore,
    DigestStore,
    HistoryStore,
    JobStore,
    KeyStore,
    OutboxStore,
    OverdueStore,
    PreferenceStore,
    ReplayStore,
    RightsStore,
    SealKeyStore,
    SkippedStore,
    StreamStore,
    SuppressionStore,
    TargetRows,
    TemplateStore,
    ThrottleStore,
    TicketStore,
    UpkeepStore,
    WaitingStore,
):
    """A store per concern, over one engine."""
