"""Breakers at home in Redis: one state for the whole fleet, every transition one script."""

from collections.abc import Mapping
from importlib.resources import files

from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.domain.breaker import Admission, BreakerPolicy, State
from carillon.domain.events import BreakerChanged, Trouble
from carillon.domain.ports import Breakers, Clock, Observer

_SCRIPT = (files("carillon.outbound") / "breakers.lua").read_text()
AWAY_SECONDS = 1.0
_PARTS = ("state", "failures", "successes", "opened_at", "probes")


class RedisBreakers:
    """Shared breakers; while Redis is away each process falls back to its own, never blocks and never loses."""

    def __init__(
        self,
        redis: Redis,
        policies: Mapping[str, BreakerPolicy],
        *,
        prefix: str,
        fallback: Breakers,
        clock: Clock,
        observer: Observer,
        refresh_seconds: float = 0.25,
    ) -> None:
        self._script = redis.register_script(_SCRIPT)
        self._policies = policies
        self._prefix = prefix
        self._fallback = fallback
        self._clock = clock
        self._observe = observer
        self._refresh = refresh_seconds
        self._seen: dict[str, State] = {}
        self._fresh_until: dict[str, float] = {}
        self._away_until = 0.0
        self._failing: set[str] = set()
        """Providers with failures since their last success: only their successes are worth a round trip."""

    async def admit(self, provider: str) -> Admission:
        if self._seen.get(provider) is State.CLOSED and self._clock.monotonic() < self._fresh_until[provider]:
            return Admission.GO
        said = await self._run("admit", provider)
        return await self._fallback.admit(provider) if said is None else Admission(said)

    async def record(self, provider: str, *, ok: bool) -> None:
        if ok and provider not in self._failing and self._seen.get(provider) is State.CLOSED:
            return
        if ok:
            self._failing.discard(provider)
        else:
            self._failing.add(provider)
        await self._fallback.record(provider, ok=ok)
        await self._run("ok" if ok else "fail", provider)
        if not ok:
            # Others may be failing too: the next caller asks instead of trusting this look.
            self._fresh_until[provider] = 0.0

    async def states(self) -> dict[str, State]:
        for provider, state in list(self._seen.items()):
            if state is not State.CLOSED or self._clock.monotonic() >= self._fresh_until[provider]:
                await self._run("look", provider)
        # What Redis could not be asked about is known only to the process's own breakers.
        return {**await self._fallback.states(), **self._seen}

    async def _run(self, verb: str, provider: str) -> str | None:
        if self._clock.monotonic() < self._away_until:
            return None
        policy = self._policies.get(provider) or self._policies["*"]
        try:
            state, said = await self._script(
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
            self._observe(Trouble(where="breakers", error=str(error)))
            self._seen.pop(provider, None)
            # A Redis that hangs must not cost every attempt its time-out.
            self._away_until = self._clock.monotonic() + AWAY_SECONDS
            return None
        self._note(provider, State(_text(state)))
        return _text(said)

    def _note(self, provider: str, state: State) -> None:
        before = self._seen.get(provider, State.CLOSED)
        self._seen[provider] = state
        self._fresh_until[provider] = self._clock.monotonic() + self._refresh
        if before is not state:
            self._observe(BreakerChanged(provider=provider, before=before, after=state))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
