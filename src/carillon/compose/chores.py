"""The loops of upkeep: one process of a fleet runs each of them, whatever the number of processes."""

from collections.abc import Awaitable, Callable

from carillon.compose import history, picker, receipts
from carillon.compose import synchronous as immediate
from carillon.compose.process import Process
from carillon.ledger.opening import Ledger
from carillon.upkeep.alerts import Relay
from carillon.upkeep.retention import Retention, RetentionSettings

Loop = Callable[[], Awaitable[None]]


def loops(process: Process, ledger: Ledger, relay: Relay | None) -> dict[str, Loop]:
    """By the name that trouble is reported under."""
    found: dict[str, Loop] = {"retention": _retention(process, ledger).run}
    abandoned = immediate.abandoned(process, ledger)
    if abandoned is not None:
        found["abandoned"] = abandoned.run
    waiting = receipts.waiting(process, ledger)
    if waiting is not None:
        found["receipts"] = waiting.run
    cleanup = picker.lease_cleanup(process, ledger)
    if cleanup is not None:
        found["lease reset"] = cleanup.run
    if relay is not None:
        found["alerts"] = relay.run
    kept = history.keeping(process, ledger)
    if kept is not None:
        found["history"] = kept.run
    return found


def _retention(process: Process, ledger: Ledger) -> Retention:
    kept = process.settings.retention
    rules = RetentionSettings(
        interval_seconds=kept.interval_seconds,
        record_seconds=kept.record_seconds,
        malformed_seconds=kept.malformed_seconds,
        batch=kept.batch,
    )
    return Retention(ledger, process.observe, process.clock, rules)
