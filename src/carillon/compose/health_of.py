"""The health of providers: where their breakers are kept, and who asks them while one is open."""

from carillon.compose import parts
from carillon.compose.process import Process
from carillon.domain.ports import Provider
from carillon.ledger.opening import Ledger
from carillon.outbound.breakers.ledger import LedgerBreakers
from carillon.outbound.breakers.probe import BreakerProbe, RecoverableBreakers


def shared_breakers(process: Process, ledger: Ledger, own: RecoverableBreakers) -> RecoverableBreakers:
    """In the ledger where the settings ask for it, otherwise in this process's memory."""
    if not process.settings.ledger.share_breakers:
        return own
    return LedgerBreakers(
        ledger,
        parts.breaker_policies(process.settings),
        service=process.settings.service,
        fallback=own,
        clock=process.clock,
        observer=process.observe,
    )


def probing(process: Process, providers: dict[str, Provider], breakers: RecoverableBreakers) -> BreakerProbe | None:
    """None where nobody is to be asked; a drill's time scale shortens the interval as it does the breakers' times."""
    names = process.settings.probing.providers
    if not names:
        return None
    return BreakerProbe(
        providers=providers,
        names=names,
        breakers=breakers,
        clock=process.clock,
        observer=process.observe,
        every_seconds=process.settings.probing.interval_seconds * process.settings.drill.time_scale,
    )
