"""docs/explanation/crash-ledger.md, written from the figures of one run."""

import os
import platform
import subprocess
import time
from pathlib import Path

from tests.fleet.checker import Cell
from tests.fleet.crews import CALL, LEASE
from tests.fleet.running import Outcome

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "crash-ledger.md"
MARK = "<!-- figures -->"
SOAK = "<!-- soak -->"
TITLES = {"local-sqlite": "local, SQLite", "galaxy": "galaxy, Redis", "push-worker": "push-worker, RabbitMQ"}
TITLES |= {"billing": "billing, Redis lists", "sse": "sse, Kafka", "listo": "listo", "local": "local"}


def text(outcome: Outcome, topology: str) -> str:
    """The figures as Markdown."""
    whole = topology == "WholeServers"
    topology = "servers in their highly available form" if whole else "one server of each kind"
    suffered = outcome.suffered
    lines = [
        f"Run of {time.strftime('%Y-%m-%d')}: {outcome.seconds / 60:.1f} minutes, {len(outcome.faults)} faults,",
        f"seed {outcome.plan.seed}, {outcome.plan.size} processes of each blueprint, {topology}.",
        "",
        f"Machine: {machine()}. Versions: {', '.join(versions())}.",
        f"Leases last {LEASE:.0f} s, a call at most {CALL:.0f} s.",
        "",
        *_totals(outcome),
        "",
        f"Everything was terminal {outcome.quiet_seconds:.0f} s after the end of the load.",
        f"{outcome.restarts} processes were started again. The verdict of the checker: **{outcome.verdict}**.",
        "",
        *([f"The run ended early: {suffered.ended_early}.", ""] if suffered.ended_early else []),
        *([f"Could not be made: {'; '.join(suffered.not_struck)}.", ""] if suffered.not_struck else []),
        *reasons(outcome),
        "Each cell: lost / repeated (in flight at the fault) / latest end after the acceptance in seconds /",
        "longest time without an acceptance in seconds.",
        "",
        *_cells(outcome),
    ]
    return "\n".join(lines)


def reasons(outcome: Outcome) -> list[str]:
    """The promises that were not kept, and apart from them what an operator would have had to repair."""
    broken, troubles = outcome.broken(), outcome.suffered.troubles
    healed = [
        "Did not heal by itself in time. The harness then did what an operator would; where that failed, it says so:",
        "",
        "```text",
        *troubles,
        "```",
        "",
    ]
    return [*(["```text", *broken, "```", ""] if broken else []), *(healed if troubles else [])]


def _totals(outcome: Outcome) -> list[str]:
    names = list(outcome.figures)
    lines = ["| | " + " | ".join(TITLES[name] for name in names) + " | all |", "| --- |" + " ---: |" * (len(names) + 1)]
    rows = {
        "accepted": [each.accepted for each in outcome.figures.values()],
        "sent": [each.sends for each in outcome.figures.values()],
        "lost": [len(each.lost) for each in outcome.figures.values()],
        "accepted twice": [len(each.split) for each in outcome.figures.values()],
        "settled twice": [len(each.settled_twice) for each in outcome.figures.values()],
        "given up": [len(each.given_up) for each in outcome.figures.values()],
        "not terminal": [len(each.unfinished) for each in outcome.figures.values()],
        "repeated": [each.repeats for each in outcome.figures.values()],
        "repeated without a fault": [len(each.unexplained) for each in outcome.figures.values()],
        "repeated under another id": [len(each.renamed) for each in outcome.figures.values()],
    }
    return lines + [
        f"| {title} | " + " | ".join(map(str, [*found, sum(found)])) + " |" for title, found in rows.items()
    ]


def _cells(outcome: Outcome) -> list[str]:
    names = list(outcome.figures)
    lines = ["| fault | " + " | ".join(TITLES[name] for name in names) + " |", "| --- |" + " --- |" * len(names)]
    for fault in dict.fromkeys(outcome.faults):
        cells = []
        for name in names:
            cell = outcome.figures[name].windows.get(fault, Cell())
            cells.append(
                f"{cell.lost} / {cell.repeated} ({cell.in_flight}) / {cell.late:.1f} / {cell.unavailable:.1f}"
                if cell.accepted
                else "nothing accepted"
            )
        times = outcome.faults.count(fault)
        lines.append(f"| {fault}{f', {times} times' if times > 1 else ''} | " + " | ".join(cells) + " |")
    return lines


def write(outcome: Outcome, topology: str) -> None:
    replace_part(MARK, text(outcome, topology))


def replace_part(mark: str, content: str) -> None:
    """Put the content between two marks of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(f"{mark}\n")
    _, _, after = rest.partition(f"{mark}\n")
    PAGE.write_text(f"{before}{mark}\n\n{content}\n\n{mark}\n{after}", encoding="utf-8")


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    system = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"{os.cpu_count()} cores, {memory} GB, {system}, load average {os.getloadavg()[2]:.0f} at the end"


def versions() -> list[str]:
    """Of what is installed, as Debian names it."""
    found = [f"Python {platform.python_version()}", f"Carillon {_revision()}"]
    for package in ("postgresql-15", "patroni", "etcd-server", "haproxy", "redis-server", "rabbitmq-server"):
        done = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and done.stdout:
            found.append(f"{package} {done.stdout.split(':')[-1].split('-')[0].split('+')[0]}")
    return found


def _revision() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
