"""What `carillon doctor` asks: the question of every part, one after the other."""

import asyncio
from collections.abc import Callable, Sequence

from carillon.compose.blueprints import parts_of
from carillon.compose.part import Finding, Part
from carillon.compose.process import Process, process_of
from carillon.config.settings import Settings
from carillon.domain.errors import CarillonError

PATIENCE_SECONDS = 5.0
ORDER = ("Ledger", "Redis", "RabbitMQ", "Kafka", "History", "Templates", "Directory", "", "Providers")
"""What is nearest to the process first; a part that is not named here comes before the providers."""


async def examine(settings: Settings, parts: Callable[[Process], Sequence[Part]] = parts_of) -> list[Finding]:
    """Ask every part; one that is ill does not stop the others from being asked."""
    findings = [Finding("Settings", "ok", f"blueprint {settings.blueprint}")]
    for part in sorted(parts(process_of(settings, lambda _: None)), key=_place):
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                findings += await part.examine()
        except TimeoutError:
            findings.append(Finding(part.title, "ill", f"no answer within {PATIENCE_SECONDS:g} s"))
        except (CarillonError, OSError) as error:
            findings.append(Finding(part.title, "ill", str(error)))
    return findings


def _place(part: Part) -> int:
    return ORDER.index(part.title if part.title in ORDER else "")
