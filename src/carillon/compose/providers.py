"""The providers of a process, the tools they use, and what completes emails before they are sent."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from carillon.compose import from_settings, reports
from carillon.compose.part import DoctorFinding, Part
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.addresses import KNOWN_CHANNELS
from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.domain.ports import Probed, Provider
from carillon.intake.erased import ErasedAddresses
from carillon.ledger.opening import Ledger
from carillon.outbound.completing import MailCompleter
from carillon.providers import Tools
from carillon.providers.egress import EgressGuard, Rules, parse_networks, parse_own, parse_ports
from carillon.providers.files import FileFetcher
from carillon.providers.sandbox import Drill, Sandbox
from carillon.system import SystemClock, system_dice
from carillon.upkeep.api import sandbox
from carillon.web import Endpoint

PROBE_SECONDS = 4.0
"""How long `carillon doctor` waits for one vendor: less than it gives the whole part, so that it names the vendor."""


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
        findings = [_of_channel(channel, chain) for channel, chain in chains.items()]
        findings += [DoctorFinding(f"Provider {name}", "warn", said) for name, said in from_settings.remarks(settings)]
        findings += [
            DoctorFinding(f"Goals {channel}", "ok", said) for channel, said in reports.remarks(settings, chains)
        ]
        async with AsyncExitStack() as stack:
            tools = from_settings.tools(settings, SystemClock(), system_dice, **self._more())
            stack.push_async_callback(tools.http.aclose)
            providers = from_settings.providers(settings, self._process.used, tools)
            for provider in providers.values():
                stack.push_async_callback(provider.aclose)
            # Side by side: a vendor that hangs does not hide what the others answer.
            findings += await asyncio.gather(
                *(
                    _finding(name, str(settings.providers[name]["kind"]), provider)
                    for name, provider in providers.items()
                )
            )
        return findings


def _of_channel(channel: str, chain: Sequence[str]) -> DoctorFinding:
    if channel in KNOWN_CHANNELS:
        return DoctorFinding(f"Channel {channel}", "ok", " → ".join(chain))
    said = f"no door takes a message for it; write one of {', '.join(sorted(KNOWN_CHANNELS))}"
    return DoctorFinding(f"Channel {channel}", "ill", said)


async def _finding(name: str, kind: str, provider: Provider) -> DoctorFinding:
    if not isinstance(provider, Probed):
        return DoctorFinding(f"Provider {name}", "ok", f"{kind}; cannot be checked without a message")
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            complaint = await provider.probe()
    except TimeoutError:
        complaint = f"no answer within {PROBE_SECONDS:g} s"
    except (CarillonError, OSError) as error:
        complaint = str(error)
    if complaint is not None:
        return DoctorFinding(f"Provider {name}", "ill", f"{kind}: {complaint}")
    return DoctorFinding(f"Provider {name}", "ok", f"{kind} answers")


def mail_completer(settings: Settings, ledger: Ledger, tools: Tools) -> MailCompleter:
    """Completes emails with the process's HTTP client and ledger."""
    given = settings.mail
    fetcher = FileFetcher(tools.http, EgressGuard(_egress(settings, tools)), tuple(given.types), tools.clock)

    erased = ErasedAddresses(ledger, tools.clock)

    async def is_suppressed(address: str, tenant_id: str | None) -> bool:
        held = await ledger.suppression_in_force("email", address, tenant_id, None)
        return held is not None or await erased.hold("email", address, tenant_id)

    return MailCompleter(
        fetcher.fetch,
        is_suppressed,
        ledger.keep_message,
        most_bytes=given.attachment_bytes,
        fetch_seconds=given.fetch_seconds,
    )


def _egress(settings: Settings, tools: Tools) -> Rules:
    given = settings.mail
    try:
        return Rules(
            allow_http=given.allow_http,
            allow_networks=parse_networks(given.allow_networks),
            allow_hosts=frozenset(host.lower() for host in given.allow_hosts),
            allow_ports=parse_ports(given.allow_ports),
            own=parse_own(tools.own_addresses),
        )
    except ValueError as error:
        raise ConfigurationError(f"mail: {error}") from None
