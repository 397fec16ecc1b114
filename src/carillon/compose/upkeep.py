"""The loops of upkeep: in a fleet each process with that role may run them, whatever the number of processes."""

from collections.abc import Mapping
from typing import Any

from carillon.compose import history, receipts, synchronous
from carillon.compose.alerts import AlertsPart
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Finding, Loop, Part, Role
from carillon.compose.process import Process
from carillon.ledger.opening import Ledger
from carillon.upkeep.cleanup import LeaseCleanup, Retention, RetentionRules
from carillon.upkeep.health import Check, degraded


class UpkeepPart(Part):
    """Retention, abandoned deliveries, early receipts, expired leases, and alerts."""

    role = Role.UPKEEP

    def __init__(self, process: Process, ledger: LedgerPart, alerts: AlertsPart) -> None:
        self._process = process
        self._ledger = ledger
        self._alerts = alerts

    def run(self) -> Mapping[str, Loop]:
        process, ledger = self._process, self._ledger.ledger
        process.tell_started("retention_worker")
        loops: dict[str, Any] = {
            "retention": _retention(process, ledger),
            "abandoned": synchronous.abandoned(process, ledger),
            "receipts": receipts.waiting(process, ledger),
            "lease reset": _lease_cleanup(process, ledger),
            "alerts": self._alerts.relay,
        }
        return {name: loop.run for name, loop in loops.items() if loop is not None}


class HistoryPart(Part):
    """Copies what has ended into ClickHouse, where the settings name one."""

    title = "History"
    role = Role.UPKEEP

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger

    def run(self) -> Mapping[str, Loop]:
        kept = history.keeping(self._process, self._ledger.ledger)
        return {} if kept is None else {"history": kept.run}

    def checks(self) -> Mapping[str, Check]:
        settings = self._process.settings
        if settings.history.url is None or settings.history.url.startswith("chdb"):
            return {}
        archive = history.kept_at(settings)

        async def ask() -> dict[str, Any]:
            return {"version": await archive.version()}

        return {"history": degraded(ask)}

    async def examine(self) -> list[Finding]:
        settings = self._process.settings
        if settings.history.url is None:
            return []
        return [Finding("History", "ok", f"ClickHouse {await history.kept_at(settings).version()}")]


def _retention(process: Process, ledger: Ledger) -> Retention:
    kept = process.settings.retention
    rules = RetentionRules(
        interval_seconds=kept.interval_seconds,
        record_seconds=kept.record_seconds,
        malformed_seconds=kept.malformed_seconds,
        batch=kept.batch,
    )
    return Retention(ledger, process.observe, process.clock, rules)


def _lease_cleanup(process: Process, ledger: Ledger) -> LeaseCleanup | None:
    """None where expired leases are simply claimed again."""
    picker = process.settings.task_picker
    if picker is None:
        return None
    return LeaseCleanup(ledger, ledger.signal, process.observe, process.clock, picker.lease_cleanup_interval)
