"""Circuit breakers of a process: in Redis, in the ledger or in memory, and the questions that close an open one."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from carillon.compose import from_settings
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Finding, Loop, Part, Role
from carillon.compose.process import Process
from carillon.compose.providers import ProvidersPart
from carillon.domain.breaker import State
from carillon.outbound.breakers.memory import MemoryBreakers
from carillon.outbound.breakers.probe import BreakerProbe, RecoverableBreakers
from carillon.outbound.breakers.shared import LedgerBreakers
from carillon.upkeep.health import Check, degraded

if TYPE_CHECKING:
    from carillon.compose.shared_redis import SharedRedis


class BreakersPart(Part):
    """Processes of a fleet share their breakers where there is a Redis, or where the settings say so."""

    title = "Redis"
    breakers: RecoverableBreakers

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger
        self.shared: SharedRedis | None = None

    async def open(self, stack: AsyncExitStack) -> None:
        process = self._process
        settings = process.settings
        own = MemoryBreakers(from_settings.breaker_policies(settings), process.clock, process.observe)
        if settings.redis.url is not None:
            from carillon.compose.shared_redis import SharedRedis  # noqa: PLC0415 - see its first line

            self.shared = SharedRedis(settings.redis.url)
            stack.push_async_callback(self.shared.aclose)
            self.breakers = self.shared.breakers(settings, own, process.clock, process.observe)
        elif settings.ledger.share_breakers:
            self.breakers = LedgerBreakers(
                self._ledger.ledger,
                from_settings.breaker_policies(settings),
                service=settings.service,
                fallback=own,
                clock=process.clock,
                observer=process.observe,
            )
        else:
            self.breakers = own

    def checks(self) -> Mapping[str, Check]:
        # Without Redis each process falls back to its own breakers, which is worse, not broken.
        return {} if self.shared is None else {"redis": degraded(self.shared.check)}

    def facts(self) -> Mapping[str, Check]:
        async def ask() -> dict[str, Any]:
            states = await self.breakers.states()
            closed = all(state is State.CLOSED for state in states.values())
            return {
                "status": "healthy" if closed else "degraded",
                "states": {name: str(state) for name, state in states.items()},
            }

        return {"breakers": ask}

    async def examine(self) -> list[Finding]:
        settings = self._process.settings
        location = settings.redis.location()
        if settings.stream is not None:
            return []
        if location is None:
            return [Finding("Redis", "ok", "not configured; each process keeps its own breakers")]
        from carillon.compose.shared_redis import examine_redis  # noqa: PLC0415 - see its first line

        return [await examine_redis(location, "shared breakers")]


class ProbingPart(Part):
    """Asks providers whose breaker is open; a drill's time scale shortens the interval too."""

    role = Role.OUTBOUND

    def __init__(self, process: Process, providers: ProvidersPart, breakers: BreakersPart) -> None:
        self._process = process
        self._providers = providers
        self._breakers = breakers

    def run(self) -> Mapping[str, Loop]:
        settings = self._process.settings
        if not settings.probing.providers:
            return {}
        probing = BreakerProbe(
            providers=self._providers.providers,
            names=settings.probing.providers,
            breakers=self._breakers.breakers,
            clock=self._process.clock,
            observer=self._process.observe,
            every_seconds=settings.probing.interval_seconds * settings.drill.time_scale,
        )
        return {"probing": probing.run}
