"""Vendors' callbacks, built from their settings."""

from collections.abc import Sequence

from carillon.compose import from_settings, reports
from carillon.compose.from_settings import NOT_OPTIONS
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Part
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.ports import Clock, ReceiptReader
from carillon.domain.receipts import ReceiptRules
from carillon.ledger.opening import Ledger
from carillon.providers import callback, has_receipts, load_reader
from carillon.receipts import callbacks, suppressions
from carillon.receipts.callbacks import OverdueReceipts, WaitingReceipts
from carillon.web import Endpoint

Chains = dict[str, tuple[str, ...]]


class ReceiptsPart(Part):
    """Serves the vendors' callbacks and the suppressions."""

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger

    def endpoints(self) -> list[Endpoint]:
        return endpoints(self._process, self._ledger.ledger)

    def pages(self) -> Sequence[str]:
        return ("suppressions",)


def receipt_rules(settings: Settings, chains: Chains) -> ReceiptRules:
    """The rules for failed deliveries; a synchronous message that is sent again waits in the first queue."""
    lanes = from_settings.lanes(settings)
    queued = {lane.rank for lane in lanes.queued()}
    return ReceiptRules(
        chains=chains,
        lanes={lane.rank: min(queued) for lane in lanes.ordered() if lane.rank not in queued},
        bounces_before_silence=settings.receipts.bounces_before_silence,
        suppressions=from_settings.suppression_terms(settings),
        policies=from_settings.policies(settings),
    )


def readers(settings: Settings, chains: Chains, clock: Clock) -> dict[str, list[ReceiptReader]]:
    """The readers of callbacks, by kind, of every provider in use that can prove its reports; a sandbox has none."""
    found: dict[str, list[ReceiptReader]] = {}
    for name in sorted({name for chain in chains.values() for name in chain}):
        options = settings.providers.get(name, {})
        kind = str(options.get("kind", ""))
        if has_receipts(kind) and options.get(callback(kind).proof):
            given = {option: value for option, value in options.items() if option not in NOT_OPTIONS}
            found.setdefault(kind, []).append(load_reader(name, kind, given, clock))
    return found


def endpoints(process: Process, ledger: Ledger) -> list[Endpoint]:
    """The endpoints of callbacks and of suppressions."""
    settings = process.settings
    found = readers(settings, process.chains, process.clock)
    reported = callbacks.endpoints(
        {kind: callback(kind) for kind in found},
        found,
        ledger,
        receipt_rules(settings, process.chains),
        process.observe,
        trust_forwarded=settings.receipts.trust_forwarded,
    )
    return [*reported, *suppressions.endpoints(ledger, process.clock, ledger.note_action)]


def waiting(process: Process, ledger: Ledger) -> WaitingReceipts | None:
    """The loop that matches receipts again that came before their message; None if no provider reports back."""
    settings = process.settings
    if not readers(settings, process.chains, process.clock):
        return None
    rules = receipt_rules(settings, process.chains)
    return WaitingReceipts(ledger, rules, process.observe, process.clock, settings.receipts.look_again_seconds)


def overdue(process: Process, ledger: Ledger) -> OverdueReceipts | None:
    """The loop that gives up delivery reports that do not come in time; None if no provider has a deadline."""
    settings = process.settings
    deadlines = reports.deadlines(settings, process.chains)
    if not deadlines:
        return None
    rules = receipt_rules(settings, process.chains)
    interval = settings.receipts.look_again_seconds
    return OverdueReceipts(
        ledger, rules, deadlines, observer=process.observe, clock=process.clock, interval_seconds=interval
    )
