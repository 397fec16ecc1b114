"""The breakers that all processes on one ledger share: the machine is domain/breaker.py, a row is its memory."""

import msgspec

from carillon.domain.breaker import Breaker, BreakerPolicy, BreakerVerb, State, Step, step
from carillon.domain.store import Ask, Engine, Row, Steps


class BreakerStore:
    """Satisfies BreakerLedger."""

    engine: Engine

    async def breaker_step(self, service: str, provider: str, verb: BreakerVerb, policy: BreakerPolicy) -> Step:
        key = {"service": service, "provider": provider}
        said = _unlocked(await self.engine.one("breaker_look", key), policy, verb)
        if said is not None:
            return said

        def steps() -> Steps[Step]:
            (row,) = yield Ask("breaker_lock", key)
            before = _read(row)
            after, said = step(before, policy, verb, row["now"])
            if after != before:
                yield Ask("breaker_keep", {**key, **_columns(after)})
            return said

        # A repeat after a lost answer could count a failure twice: a missing count is the smaller harm.
        return await self.engine.change(steps, repeatable=False, pool="settlements")


def _unlocked(row: Row | None, policy: BreakerPolicy, verb: BreakerVerb) -> Step | None:
    """The answer where the step would change nothing; None where it must be taken under the lock."""
    breaker, now = (Breaker(), 0.0) if row is None else (_read(row), float(row["now"]))
    after, said = step(breaker, policy, verb, now)
    return said if after == breaker else None


def _read(row: Row) -> Breaker:
    return Breaker(
        state=State(row["state"]),
        failures=row["failures"],
        successes=row["successes"],
        opened_at=row["opened_at"] or 0.0,
        probes=tuple(msgspec.json.decode(row["probes_json"], type=list[float])),
    )


def _columns(breaker: Breaker) -> Row:
    return {
        "state": str(breaker.state),
        "failures": breaker.failures,
        "successes": breaker.successes,
        "opened_at": breaker.opened_at or None,
        "probes_json": msgspec.json.encode(breaker.probes).decode(),
    }
