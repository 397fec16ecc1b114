"""What `carillon doctor` asks of each part."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from carillon.compose import parts
from carillon.domain.errors import CarillonError
from carillon.domain.ports import Probed, Provider
from carillon.settings import Settings
from carillon.system import SystemClock, system_dice

PATIENCE_SECONDS = 5.0
MAX_SKEW_SECONDS = 2.0


class Finding(msgspec.Struct, frozen=True):
    """What is the matter with one part."""

    part: str
    verdict: Literal["ok", "warn", "ill"]
    words: str

    def plain(self) -> dict[str, str]:
        return {"part": self.part, "verdict": self.verdict, "words": self.words}


async def examine(settings: Settings) -> list[Finding]:
    """Ask every part, one after the other; one that is ill does not stop the others from being asked."""
    checks: list[tuple[str, Callable[[Settings], Awaitable[list[Finding]]]]] = [
        ("Ledger", _ledger),
        ("Redis", _redis),
        ("Templates", _templates),
        ("Providers", _providers),
    ]
    findings = [Finding("Settings", "ok", f"blueprint {settings.blueprint}")]
    for part, check in checks:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                findings += await check(settings)
        except TimeoutError:
            findings.append(Finding(part, "ill", f"no answer within {PATIENCE_SECONDS:g} s"))
        except (CarillonError, OSError) as error:
            findings.append(Finding(part, "ill", str(error)))
    return findings


async def _ledger(settings: Settings) -> list[Finding]:
    ledger = await parts.open_ledger(settings)
    try:
        said = await ledger.check()
    finally:
        await ledger.aclose()
    words = f"{said['engine']} {said['version']}, {said['response_time_ms']:.1f} ms"
    findings = [Finding("Ledger", "ok", words)]
    if not said["durable"]:
        findings.append(Finding("Ledger", "warn", f"may lose commits: {said['settings']}"))
    if abs(said["clock_skew_seconds"]) > MAX_SKEW_SECONDS:
        skew = f"its clock differs from ours by {said['clock_skew_seconds']:.1f} s; leases follow its clock"
        findings.append(Finding("Ledger", "warn", skew))
    return findings


async def _redis(settings: Settings) -> list[Finding]:
    if settings.redis.url is None:
        return [Finding("Redis", "ok", "not configured; each process keeps its own breakers")]
    from carillon.compose.fleet import Fleet  # noqa: PLC0415 - see its first line

    fleet = Fleet(settings.redis.url)
    try:
        return [Finding("Redis", "ok", f"version {await fleet.version()}, shared breakers")]
    finally:
        await fleet.aclose()


async def _templates(settings: Settings) -> list[Finding]:
    count = parts.templates(settings).count()
    return [Finding("Templates", "ok" if count else "warn", f"{count} read and checked")]


async def _providers(settings: Settings) -> list[Finding]:
    chains = parts.chains(settings)
    findings = [Finding(f"Channel {channel}", "ok", " → ".join(chain)) for channel, chain in chains.items()]
    tools = parts.tools(settings, SystemClock(), system_dice)
    try:
        built = parts.providers(settings, {name for chain in chains.values() for name in chain}, tools)
        for name, provider in built.items():
            findings.append(await _provider(name, str(settings.providers[name]["kind"]), provider))
            await provider.aclose()
    finally:
        await tools.http.aclose()
    return findings


async def _provider(name: str, kind: str, provider: Provider) -> Finding:
    if not isinstance(provider, Probed):
        return Finding(f"Provider {name}", "ok", f"{kind}; has nothing to ask before there is a message")
    complaint = await provider.probe()
    if complaint is not None:
        return Finding(f"Provider {name}", "ill", f"{kind}: {complaint}")
    return Finding(f"Provider {name}", "ok", f"{kind} answers")
