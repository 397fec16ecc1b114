"""Vendors' callbacks, built from their settings."""

from carillon.compose import from_settings
from carillon.compose.from_settings import NOT_OPTIONS
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Part
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.ports import Clock, ReceiptReader
from carillon.domain.receipts import AmendRules
from carillon.ledger.opening import Ledger
from carillon.providers import callback, has_receipts, load_reader
from carillon.receipts import callbacks, suppressions
from carillon.receipts.waiting import WaitingReceipts
from carillon.web import Endpoint

Chains = dict[str, tuple[str, ...]]


class ReceiptsPart(Part):
    """Takes what vendors report back."""

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger

    def endpoints(self) -> list[Endpoint]:
        return endpoints(self._process, self._ledger.ledger)


def amend_rules(settings: Settings, chains: Chains) -> AmendRules:
    """What a failed delivery leads to; what was sent while its caller waited has to queue from then on."""
    lanes = from_settings.lanes(settings)
    queued = {lane.rank for lane in lanes.queued()}
    return AmendRules(
        chains=chains,
        lanes={lane.rank: min(queued) for lane in lanes.ordered() if lane.rank not in queued},
        bounces_before_silence=settings.receipts.bounces_before_silence,
        silence_seconds=settings.receipts.silence_seconds,
    )


def readers(settings: Settings, chains: Chains, clock: Clock) -> dict[str, list[ReceiptReader]]:
    """For every provider in use whose kind reports back; the sandbox that stands in for one does not."""
    found: dict[str, list[ReceiptReader]] = {}
    for name in sorted({name for chain in chains.values() for name in chain}):
        options = settings.providers.get(name, {})
        kind = str(options.get("kind", ""))
        if has_receipts(kind):
            given = {option: value for option, value in options.items() if option not in NOT_OPTIONS}
            found.setdefault(kind, []).append(load_reader(name, kind, given, clock))
    return found


def endpoints(process: Process, ledger: Ledger) -> list[Endpoint]:
    """Where vendors report back, and what operators do about silent addresses."""
    settings = process.settings
    found = readers(settings, process.chains, process.clock)
    reported = callbacks.endpoints(
        {kind: callback(kind) for kind in found},
        found,
        ledger,
        amend_rules(settings, process.chains),
        process.observe,
        trust_forwarded=settings.receipts.trust_forwarded,
    )
    return [*reported, *suppressions.endpoints(ledger, process.clock)]


def waiting(process: Process, ledger: Ledger) -> WaitingReceipts | None:
    """The loop that looks again at receipts that came too early; None where nobody reports back."""
    settings = process.settings
    if not readers(settings, process.chains, process.clock):
        return None
    rules = amend_rules(settings, process.chains)
    return WaitingReceipts(ledger, rules, process.observe, process.clock, settings.receipts.look_again_seconds)
