"""The ledger of a process, opened from the settings and migrated."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from carillon.compose import reports
from carillon.compose.part import DoctorFinding, Part
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.intents import Intent
from carillon.domain.ports import Clock
from carillon.intake.people import PreferenceLookup, StoredPeople
from carillon.ledger import opening
from carillon.ledger.adoption import ChunkPlan
from carillon.ledger.leases import LIVE
from carillon.ledger.opening import Ledger, seen_by_others
from carillon.ledger.postgres.pools import PoolRules
from carillon.ledger.rows import ALERT_FROM
from carillon.ledger.sealing import read_keys
from carillon.upkeep.health import Check
from carillon.upkeep.metrics.meters import Metrics

MAX_SKEW_SECONDS = 2.0
EXAMINED_TICKETS = 20_000


class LedgerPart(Part):
    """Opens and migrates the ledger; every process has one."""

    title = "Ledger"
    ledger: Ledger

    def __init__(self, process: Process, check: str = "ledger") -> None:
        """`check` is the name of the ledger in /health."""
        self._process = process
        self._settings = process.settings
        self._check = check
        self._opened = False

    def refuse(self) -> None:
        reports.deadlines(self._settings, self._process.chains)
        live_providers(self._process.chains)

    async def open(self, stack: AsyncExitStack) -> None:
        self.ledger = await open_ledger(self._settings)
        self.ledger.receipt_deadlines = reports.deadlines(self._settings, self._process.chains)
        self.ledger.live = live_providers(self._process.chains)
        stack.push_async_callback(self.ledger.aclose)
        await self.ledger.migrate()
        self._opened = True

    @property
    def chains(self) -> dict[str, tuple[str, ...]]:
        """The providers of each channel."""
        return self._process.chains

    def cut_off(self) -> None:
        if self._opened:
            self.ledger.cut_off()

    def checks(self) -> Mapping[str, Check]:
        return {self._check: self.ledger.check}

    def gauges(self, metrics: Metrics) -> None:
        metrics.watch(self.ledger, asyncio.get_running_loop())

    async def examine(self) -> list[DoctorFinding]:
        ledger = await open_ledger(self._settings)
        try:
            said = await ledger.check()
            await ledger.refuse_newer()
            plans = await ledger.foreseen()
            # A ledger that is not migrated yet has no tickets.
            lost = [] if plans else (await ledger.lost_tickets(0, EXAMINED_TICKETS))[0]
        finally:
            await ledger.aclose()
        words = f"{said['engine']} {said['version']}, {said['response_time_ms']:.1f} ms"
        findings = [DoctorFinding("Ledger", "ok", words)]
        findings += [
            DoctorFinding("Ledger", "ok", f"the table {plan.adopts} is there: its rows stay, {_new_columns(plan)}")
            for plan in plans
            if plan.adopts is not None
        ]
        if lost:
            words = (
                f"waiting routes that stand in no queue: {len(lost)}; a process with upkeep puts them back in minutes"
            )
            findings.append(DoctorFinding("Ledger", "warn", words))
        exposed = seen_by_others(self._settings.ledger.url)
        if exposed is not None:
            findings.append(DoctorFinding("Ledger", "warn", exposed))
        if not said["durable"]:
            findings.append(DoctorFinding("Ledger", "warn", f"may lose commits: {said['settings']}"))
        if abs(said["clock_skew_seconds"]) > MAX_SKEW_SECONDS:
            skew = f"its clock differs from ours by {said['clock_skew_seconds']:.1f} s; leases follow its clock"
            findings.append(DoctorFinding("Ledger", "warn", skew))
        return findings


def live_providers(chains: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """The providers of live streams; raises ConfigurationError for one that another channel uses too.

    Their routes are claimed by a statement of their own, which takes no others.
    """
    live = frozenset(chains.get(LIVE, (LIVE,)))
    for channel, chain in chains.items():
        both = sorted(live.intersection(chain)) if channel != LIVE else []
        if both:
            raise ConfigurationError(
                f"channels.{LIVE}: {both[0]} serves {channel} too; live streams need their own provider"
            )
    return live


def _new_columns(plan: ChunkPlan) -> str:
    if plan.renamed is not None:
        return f"it becomes {plan.renamed}, and a view of its name has them"
    return f"and it gets {', '.join(plan.added)}" if plan.added else "and it has every column"


def parts_needed(settings: Settings) -> frozenset[str]:
    """The parts of the ledger whose tables this process needs; its other tables are the engine's."""
    wanted = {
        # Probes are the whole surface of galaxy: its schema holds what its document names and what the engine needs.
        "api": settings.http.surface != "probes",
        "streams": settings.http.surface != "probes" and settings.push is None and settings.billing is None,
        "history": settings.http.surface != "probes" or settings.history.url is not None,
        "queues": bool(settings.queue) or settings.billing is not None,
        "billing": settings.billing is not None,
        "audit": settings.push is not None,
    }
    return frozenset(part for part, needed in wanted.items() if needed)


async def open_ledger(settings: Settings) -> Ledger:
    """Open the ledger that the settings name, without migrating it."""
    ledger = settings.ledger
    rules = PoolRules(
        operation_timeout_seconds=ledger.operation_timeout_seconds,
        max_connections=ledger.max_connections,
        max_idle_connections=ledger.max_idle_connections,
        connection_lifetime_seconds=ledger.connection_lifetime_seconds,
    )
    return await opening.open_ledger(
        ledger.url,
        lease_seconds=ledger.lease_seconds,
        record_attempts=ledger.record_attempts,
        replay=ledger.replay,
        alerts=bool(settings.alerts.sinks),
        alert_from=0 if settings.alerts.synchronous else ALERT_FROM,
        allow_migration=ledger.allow_migration,
        parts=parts_needed(settings),
        allow_unsafe=ledger.allow_unsafe,
        rules=rules,
        seals=read_keys(_seal_keys(settings)),
    )


def _seal_keys(settings: Settings) -> list[str]:
    ledger = settings.ledger
    if ledger.seal_keys_file is None:
        return ledger.seal_keys
    if ledger.seal_keys:
        raise ConfigurationError("ledger.seal_keys: give the keys here or in ledger.seal_keys_file, not both")
    try:
        lines = Path(ledger.seal_keys_file).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"ledger.seal_keys_file: cannot be read: {error}") from error
    if not lines:
        raise ConfigurationError("ledger.seal_keys_file: holds no key; write one a line, the one that seals first")
    return lines


def preferences_of(settings: Settings, ledger: Ledger, clock: Clock) -> PreferenceLookup:
    """What people want, as the settings let it count."""
    people = StoredPeople(ledger, settings.preferences.holidays)
    return PreferenceLookup(people, clock, quiet_hours=settings.preferences.quiet_hours)


def ordered_people(settings: Settings, ledger: Ledger, clock: Clock) -> Callable[[Intent], Awaitable[Intent]] | None:
    """The same for doors that accept in order; None where the ledger keeps no preferences."""
    if "api" not in parts_needed(settings):
        return None
    lookup = preferences_of(settings, ledger, clock)
    # With a directory it is the directory that says how people are reached.
    return lookup if settings.directory is None else lookup.choices
