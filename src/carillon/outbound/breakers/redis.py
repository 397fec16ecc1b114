"""Breakers in Redis: one state for the whole fleet, each transition one Lua script."""

from collections.abc import Mapping
from importlib.resources import files

from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.domain.breaker import Admission, Breaker, BreakerPolicy, BreakerStep, BreakerVerb, State
from carillon.domain.ports import Clock, Observer
from carillon.outbound.breakers import RecoverableBreakers
from carillon.outbound.breakers.shared import SharedBreakers, StoreUnavailable

_SCRIPT = (files("carillon.outbound.breakers") / "breakers.lua").read_text()
_PARTS = ("state", "failures", "successes", "opened_at", "probes")
"""The keys of one breaker, in the order in which the script expects them."""


class RedisBreakers(SharedBreakers):
    """Shared breakers on Redis's own clock."""

    def __init__(
        self,
        redis: Redis,
        policies: Mapping[str, BreakerPolicy],
        *,
        prefix: str,
        fallback: RecoverableBreakers,
        clock: Clock,
        observer: Observer,
        refresh_seconds: float = 0.25,
    ) -> None:
        """`prefix` begins every key, so that several services can share one Redis."""
        super().__init__(policies, fallback=fallback, clock=clock, observer=observer, refresh_seconds=refresh_seconds)
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
