"""`make mutants`: takes each condition out of the ledger's statements, one by one, and lets worlds miss it."""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from carillon.compose.ledger import parts_needed
from carillon.ledger.statements import load
from tests.simulation.ground import settings_of
from tests.simulation.swarm import harsh
from tests.simulation.world import World

PAGE = Path("docs/explanation/mutants.md")
MISSED = "## Missed"
STATEMENTS = (
    "enrol",
    "enrolled_ticket",
    "take_due",
    "own_lease",
    "ticket_anew",
    "claimable",
    "expired",
    "lapse",
    "ripe",
    "queue_tickets",
    "claim_candidates",
    "claim",
    "end_leases",
    "extend",
    "settle_finished",
    "settle_judge",
    "settle",
    "settle_note",
    "settle_answered",
)
"""Acceptance, claim, lease and settlement; live streams, caps and dead letters have tests of their own."""
SEEDS = range(1, 6)
DELIVERIES, CRASHES = 200, 4
MOST_TURNS, PATIENCE_SECONDS = 60_000, 1500.0
_WORD = re.compile(r"\b(?:AND|OR|WHERE|ORDER|GROUP|LIMIT|RETURNING|UNION|ON|WHEN|THEN|ELSE|END|AS|SET|FROM)\b|[();]")
_COMMENT = re.compile(r"--[^\n]*")


class Mutant(msgspec.Struct, frozen=True):
    """One condition of one statement, and the statement without it."""

    statement: str
    condition: str
    text: str


class Verdict(msgspec.Struct, frozen=True):
    """What came of one mutant: the first promise that it broke, or nothing."""

    mutant: Mutant
    killed_by: str | None


def mutants_of(statement: str, text: str) -> Iterator[Mutant]:
    """The statement without each of its conditions: those behind WHERE, AND and ON CONFLICT."""
    bare = _COMMENT.sub("", text)
    for begin in re.finditer(r"\b(?:WHERE|AND)\b", bare):
        end = _end(bare, begin.end())
        condition = " ".join(bare[begin.end() : end].split())
        if condition:
            yield Mutant(statement, condition, f"{bare[: begin.end()]} TRUE {bare[end:]}")
    for begin in re.finditer(r"\bWHEN\b(?= r\.)", bare):
        end = bare.index("THEN", begin.end())
        condition = " ".join(bare[begin.end() : end].split())
        yield Mutant(statement, f"WHEN {condition}", f"{bare[: begin.end()]} TRUE {bare[end:]}")
        yield Mutant(statement, f"WHEN {condition} THEN ...", f"{bare[: begin.end()]} FALSE {bare[end:]}")
    for conflict in re.finditer(r"ON CONFLICT[^;]*?DO NOTHING", bare):
        yield Mutant(statement, conflict[0], bare[: conflict.start()] + bare[conflict.end() :])


def _end(text: str, begin: int) -> int:
    """Where the condition that begins here ends: at the next word or bracket that is not inside its own brackets."""
    depth = 0
    for found in _WORD.finditer(text, begin):
        word = found[0]
        if word == "(":
            depth += 1
        elif word == ")":
            if depth == 0:
                return found.start()
            depth -= 1
        elif depth == 0 and word not in {"AS", "FROM", "SET", "ON"}:
            return found.start()
    return len(text)


def judged(mutant: Mutant, statements: Mapping[str, str]) -> Verdict:
    """Play worlds until one misses the condition."""
    changed = {**statements, mutant.statement: mutant.text}
    for seed in SEEDS:
        try:
            world = World(seed, DELIVERIES, CRASHES, changed, harsh(seed, DELIVERIES, CRASHES))
            world.hurry(MOST_TURNS, PATIENCE_SECONDS)
            found = world.run().wrong
        except Exception as error:  # noqa: BLE001 - a statement that cannot run, or a world that hangs, is missed too
            found = [f"{type(error).__name__}: {error}"]
        if found:
            return Verdict(mutant, found[0].partition(": ")[2] or found[0])
    return Verdict(mutant, None)


_NAMES_ITS_ROUTE = "the ticket alone names the route; the key lets SQLite find the row without a search"
_NO_COST = "only saves work: what it lets through is refused by the next statement of the transaction"
_NOT_PLAYED = "worlds have no suppressions, preferences or chains: tests/contract has"
WHY: Mapping[str, str] = {
    "settle_finished: notification_id = :notification_id": _NAMES_ITS_ROUTE,
    "settle_finished: route_id = :route_id": _NAMES_ITS_ROUTE,
    "settle_finished: status IN ('pending', 'failed')": "a route that has ended has no ticket and no token any more",
    "lapse: next_attempt_at IS NOT NULL": "the same as the status, by a constraint of the table",
    "lapse: status IN ('pending', 'failed')": "a route that has ended has no ticket any more",
    "extend: notification_id = :notification_id": _NAMES_ITS_ROUTE,
    "extend: route_id = :route_id": _NAMES_ITS_ROUTE,
    "extend: ticket = :token": "tests/contract/test_ledger_controls.py misses it: `extend without its token`",
    "extend: status IN ('pending', 'failed')": "a route that has ended has no ticket any more",
    "own_lease: owner = :owner": "a first claim of another process: tests/contract/test_ledger_synchronous.py",
    "expired: expires_at <= :now": "who loses a lease early keeps the route until its end: a success is adopted",
    "ripe: r.next_attempt_at IS NOT NULL": "a comparison with nothing is not true either",
    "queue_tickets: r.next_attempt_at IS NOT NULL": "what has ended has no ticket",
    "settle_note: notification_id = :notification_id": _NAMES_ITS_ROUTE,
    "settle_note: route_id = :route_id": _NAMES_ITS_ROUTE,
}
"""By statement and condition: why no world misses it."""
_WHY_STARTS: Mapping[str, str] = {
    "claim_candidates: s.": _NOT_PLAYED,
    "claim_candidates: (s.": _NOT_PLAYED,
    "claim_candidates: p.": _NOT_PLAYED,
    "claim_candidates: e.": _NOT_PLAYED,
    "claim_candidates: CASE": _NOT_PLAYED,
    "claimable: ": _NO_COST,
}


def main() -> int:
    """Judge every mutant, print each verdict, and write the page."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", nargs="*", default=STATEMENTS, help="these statements")
    parser.add_argument("--page", type=Path, default=PAGE, help="write the verdicts to this file")
    options = parser.parse_args()
    statements = load("sqlite", frozenset(parts_needed(settings_of(5, 10, claim_on_accept=True))))
    verdicts: list[Verdict] = []
    for name in options.only:
        for mutant in mutants_of(name, statements[name]):
            verdict = judged(mutant, statements)
            verdicts.append(verdict)
            sys.stdout.write(f"{'killed  ' if verdict.killed_by else 'SURVIVES'} {name}: {mutant.condition}\n")
            sys.stdout.write(f"         {verdict.killed_by or ''}\n" if verdict.killed_by else "")
            sys.stdout.flush()
    options.page.write_text(page(options.page.read_text(encoding="utf-8"), verdicts), encoding="utf-8")
    return 0


def page(before: str, verdicts: list[Verdict]) -> str:
    """The page with new tables; what stands before them stays."""
    killed = [one for one in verdicts if one.killed_by]
    rows = [f"| `{one.mutant.statement}` | {_cell(one.mutant.condition)} | {one.killed_by} |" for one in killed]
    left = [one.mutant for one in verdicts if not one.killed_by]
    survivors = [f"| `{one.statement}` | {_cell(one.condition)} | {_why(one)} |" for one in left]
    said = f"The last run took {len(verdicts)} conditions out; worlds missed {len(killed)} of them."
    lines = [MISSED, "", said, "", "| statement | without | what a world found |", "| --- | --- | --- |", *rows]
    lines += ["", "## Survivors", "", "| statement | without | why no world misses it |", "| --- | --- | --- |"]
    return before.partition(MISSED)[0] + "\n".join([*lines, *survivors, ""])


def _cell(text: str) -> str:
    shown = text if len(text) <= 100 else f"{text[:97]}..."
    return f"`{shown}`".replace("|", "\\|")


def _why(mutant: Mutant) -> str:
    name = f"{mutant.statement}: {mutant.condition}"
    start = next((why for start, why in _WHY_STARTS.items() if name.startswith(start)), "not explained yet")
    return WHY.get(name, start)


if __name__ == "__main__":
    sys.exit(main())
