"""The console's rehearsals: which settings can be rehearsed, and the part that serves them."""

from collections.abc import Sequence

import msgspec

from carillon.compose import access
from carillon.compose.part import Part, Role
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.upkeep.rehearsals import api
from carillon.web import Endpoint

PAGE = "rehearsal"


def why_not(settings: Settings) -> str | None:
    """Why these settings cannot be rehearsed; None if they can."""
    if settings.push is not None or settings.billing is not None:
        return (
            f"the blueprint {settings.blueprint} cannot be rehearsed: its work waits in a broker; local, listo, galaxy "
            "and sse can"
        )
    return None


def absent(settings: Settings) -> str | None:
    """Why the console of these settings has no rehearsals; None if it has."""
    if settings.http.surface != "full":
        return why_not(settings) or 'rehearsals need the whole API: set http.surface = "full"'
    return why_not(settings)


class RehearsalsPart(Part):
    """Plays outages in a child process for those who may begin drills."""

    role = Role.DOORS

    def __init__(self, process: Process) -> None:
        self._process = process
        served = access.console_served(process.settings)
        self._served = served and absent(process.settings) is None and bool(process.chains)

    def endpoints(self) -> list[Endpoint]:
        if not self._served:
            return []
        settings = self._process.settings
        return api.endpoints(api.Rehearsals(msgspec.json.encode(settings), settings.channels))

    def pages(self) -> Sequence[str]:
        return (PAGE,) if self._served else ()
