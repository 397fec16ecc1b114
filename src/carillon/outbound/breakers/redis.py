"""Breakers and targets in Redis: one state for the whole fleet, each transition one Lua script."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.exceptions import RedisError

from carillon.domain.breaker import Admission, Breaker, BreakerPolicy, BreakerStep, BreakerVerb, State
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.ports import Clock, Observer
from carillon.domain.targets import Change, T, TargetState, changed, read_state, written
from carillon.outbound.breakers.shared import SharedBreakers, StoreUnavailable

_SCRIPT = (files("carillon.outbound.breakers") / "breakers.lua").read_text()
_TARGETS = (files("carillon.outbound.breakers") / "targets.lua").read_text()
_MOST_TRIES = 100
_PARTS = ("state", "failures", "successes", "opened_at", "probes", "probes:n")
"""The keys of one breaker, in the order in which the script expects them."""


class RedisBreakers(SharedBreakers):
    """Shared breakers on Redis's own clock."""

    def __init__(
        self,
        redis: Redis | RedisCluster,
        policies: Mapping[str, BreakerPolicy],
        *,
        prefix: str,
        clock: Clock,
        observer: Observer,
        refresh_seconds: float = 0.25,
    ) -> None:
        """`prefix` begins every key, so that several services can share one Redis."""
        super().__init__(policies, clock=clock, observer=observer, refresh_seconds=refresh_seconds)
        self._script = redis.register_script(_SCRIPT)
        self._prefix = prefix

    async def _step(self, verb: BreakerVerb, provider: str, policy: BreakerPolicy) -> BreakerStep | StoreUnavailable:
        """Run the script; any error of Redis means that the store is away."""
        try:
            state, said, failures, *seen = await self._script(
                keys=[f"{self._prefix}{provider}:{part}" for part in _PARTS],
                args=[
                    verb,
                    policy.failure_threshold,
                    policy.open_seconds,
                    policy.success_threshold,
                    policy.half_open_max_probes,
                    policy.probe_seconds,
                ],
            )
        except (RedisError, OSError, TimeoutError) as error:
            return StoreUnavailable(str(error))
        known = State(_text(state))
        clean = known is State.CLOSED and _text(failures) == "0"
        return BreakerStep(
            known, Admission(_text(said)), clean, _seen(known, int(failures), seen, policy) if seen else None
        )


def _seen(state: State, failures: int, seen: list[bytes | str], policy: BreakerPolicy) -> Breaker:
    remaining, successes, *probes = (float(_text(value)) for value in seen)
    return Breaker(
        state=state,
        failures=failures,
        successes=int(successes),
        opened_at=remaining - policy.open_seconds if state is State.OPEN else 0.0,
        probes=tuple(probes),
    )


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class RedisTargets:
    """Satisfies TargetStore, on Redis's own clock."""

    def __init__(self, redis: Redis | RedisCluster) -> None:
        self._script = redis.register_script(_TARGETS)

    async def target_states(self, service: str) -> tuple[float, dict[str, TargetState]]:
        now, *pairs = await self._run(service, "all")
        names, texts = pairs[::2], pairs[1::2]
        return float(now), {_text(name): read_state(text) for name, text in zip(names, texts, strict=True)}

    async def change_target(self, service: str, target: str, change: Change[T]) -> tuple[float, TargetState, T]:
        for _ in range(_MOST_TRIES):
            said, held = await self._run(service, "one", target)
            before, now = read_state(held or None), float(said)
            after, answer = changed(before, now, change)
            text = "" if after.quiet(now) else written(after)
            if text == _text(held) or await self._run(service, "swap", target, held, text):
                return now, after, answer
        raise LedgerUnavailable(f"{target} changed {_MOST_TRIES} times while it was read")

    async def _run(self, service: str, *args: str | bytes) -> Any:  # noqa: ANN401 - the verb decides what comes back
        try:
            return await self._script(keys=[f"circuit:{service}:targets"], args=args)
        except (RedisError, OSError, TimeoutError) as error:
            raise LedgerUnavailable(str(error)) from error
