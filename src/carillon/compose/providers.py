"""The providers of a process and the tools they use."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from carillon.compose import from_settings
from carillon.compose.part import DoctorFinding, Part
from carillon.compose.process import Process
from carillon.domain.ports import Probed, Provider
from carillon.providers import Tools
from carillon.providers.sandbox import Drill, Sandbox
from carillon.system import SystemClock, system_dice
from carillon.upkeep.api import sandbox
from carillon.web import Endpoint


class ProvidersPart(Part):
    """Every provider that some channel uses."""

    title = "Providers"
    tools: Tools

    def __init__(self, process: Process, more: Callable[[], dict[str, Any]] = dict) -> None:
        """`more` gives the fields of Tools that come from other parts."""
        self._process = process
        self._more = more
        self.providers: dict[str, Provider] = {}

    async def open(self, stack: AsyncExitStack) -> None:
        process = self._process
        self.tools = from_settings.tools(process.settings, process.clock, system_dice, **self._more())
        stack.push_async_callback(self.tools.http.aclose)
        self.providers = from_settings.providers(process.settings, process.used, self.tools)
        for provider in self.providers.values():
            stack.push_async_callback(provider.aclose)

    @property
    def sandboxes(self) -> dict[str, Sandbox]:
        """The sandbox providers."""
        return {name: one for name, one in self.providers.items() if isinstance(one, Sandbox)}

    def endpoints(self) -> list[Endpoint]:
        found = list(self.sandboxes.values())
        return sandbox.endpoints(found, list(self._process.chains), Drill) if found else []

    def pages(self) -> Sequence[str]:
        return ("outbox", "drills") if self.sandboxes else ()

    async def examine(self) -> list[DoctorFinding]:
        settings, chains = self._process.settings, self._process.chains
        findings = [DoctorFinding(f"Channel {channel}", "ok", " → ".join(chain)) for channel, chain in chains.items()]
        findings += [DoctorFinding(f"Provider {name}", "warn", said) for name, said in from_settings.remarks(settings)]
        async with AsyncExitStack() as stack:
            tools = from_settings.tools(settings, SystemClock(), system_dice, **self._more())
            stack.push_async_callback(tools.http.aclose)
            for name, provider in from_settings.providers(settings, self._process.used, tools).items():
                stack.push_async_callback(provider.aclose)
                findings.append(await _finding(name, str(settings.providers[name]["kind"]), provider))
        return findings


async def _finding(name: str, kind: str, provider: Provider) -> DoctorFinding:
    if not isinstance(provider, Probed):
        return DoctorFinding(f"Provider {name}", "ok", f"{kind}; cannot be checked without a message")
    complaint = await provider.probe()
    if complaint is not None:
        return DoctorFinding(f"Provider {name}", "ill", f"{kind}: {complaint}")
    return DoctorFinding(f"Provider {name}", "ok", f"{kind} answers")
