"""What administrators may ask and do, built from the settings."""

from typing import Protocol

from carillon.compose import console, parts
from carillon.compose.process import Process
from carillon.domain.ports import Provider
from carillon.ledger.opening import Ledger
from carillon.outbound.breakers.probe import RecoverableBreakers
from carillon.system import new_id
from carillon.upkeep.api import admin as admin_api
from carillon.upkeep.console.series import Series
from carillon.web import Endpoint


class Opened(Protocol):
    """The parts that are looked after."""

    @property
    def ledger(self) -> Ledger: ...
    @property
    def breakers(self) -> RecoverableBreakers: ...
    @property
    def providers(self) -> dict[str, Provider]: ...


def endpoints(process: Process, opened: Opened, series: Series) -> list[Endpoint]:
    """The administrators' endpoints; where only producers may send again, there is nothing to change by hand."""
    lanes, ledger = parts.lanes(process.settings), opened.ledger
    found = admin_api.endpoints(ledger, opened.breakers, process.chains, lanes, clock=process.clock, ids=new_id)
    found += console.endpoints(process, ledger, opened.providers, series)
    if process.settings.ledger.replay == "redrive":
        return found
    return [endpoint for endpoint in found if endpoint.method == "GET"]
