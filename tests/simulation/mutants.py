"""`make mutants`: takes each condition out of the ledger's statements, one by one, and lets worlds and tests miss it.

What is known of a mutant is kept beside this file until its statement changes: a run goes on where the last one ended.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec

from carillon.compose.ledger import parts_needed
from carillon.ledger.statements import fixed, load
from tests.simulation.ground import empty_ledger, settings_of
from tests.simulation.mutant_reasons import UNKNOWN, why
from tests.simulation.mutant_texts import STATEMENTS, Mutant, mutants_of, mutated
from tests.simulation.swarm import harsh
from tests.simulation.world import World

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "mutants.md"
KNOWN = Path(__file__).with_name("mutants.json")
MISSED = "## Missed"
SEEDS = range(1, 6)
DELIVERIES, CRASHES = 200, 4
MOST_TURNS, PATIENCE_SECONDS = 60_000, 1500.0
NEAR, NO_SQL = "near", "no SQL"
"""What tests/simulation/mutant_judge.py says of who has survived the nearest tests only, and of what no engine runs."""
WORLD = "a world"
JUDGES_PER_CORE = 2
"""The tests of a ledger wait for its server half of their time."""
_NOT_ASKED = ("plans", "copy", "from_a17ead2", "from_a452e25", "migrate", "connections", "postgres_silent", "fleet")
"""Files of tests/contract that look at plans, other releases, connections or processes."""


class Verdict(msgspec.Struct, frozen=True):
    """What came of one mutant: who missed its condition first and what was said, or nothing."""

    by: str | None
    said: str = ""


Verdicts = dict[str, Verdict]


def every_mutant(engines: list[str], only: list[str]) -> list[Mutant]:
    found: list[Mutant] = []
    for engine in engines:
        texts = load(engine)
        for name in STATEMENTS[engine]:
            if not only or name in only:
                found += mutants_of(engine, name, texts[name])
    return found


# --- worlds ----------------------------------------------------------------------------------------------------------


class _Anything(dict[str, None]):
    def __missing__(self, _: str) -> None:
        return None


def runs(text: str) -> bool:
    """Whether SQLite understands it."""
    with closing(sqlite3.connect(empty_ledger())) as connection:
        try:
            connection.execute(f"EXPLAIN {fixed(text)}", _Anything())
        except sqlite3.OperationalError:
            return False
    return True


def by_worlds(mutant: Mutant) -> Verdict | None:
    """The first harsh world that misses the condition; None if none does, or if it is not in what worlds play."""
    statements = load("sqlite", frozenset(parts_needed(settings_of(5, 10, claim_on_accept=True))))
    text = mutated(mutant, statements[mutant.statement])
    if not runs(text):
        return Verdict(NO_SQL)
    if text == statements[mutant.statement]:
        return None
    for seed in SEEDS:
        try:
            changed = {**statements, mutant.statement: text}
            world = World(seed, DELIVERIES, CRASHES, changed, harsh(seed, DELIVERIES, CRASHES))
            world.hurry(MOST_TURNS, PATIENCE_SECONDS)
            found = world.run().wrong
        except Exception as error:  # noqa: BLE001 - a world that hangs or cannot go on has missed it, too
            found = [f"{type(error).__name__}: {error}"]
        if found:
            return Verdict(WORLD, found[0].partition(": ")[2] or found[0])
    return None


def judged_by_worlds(mutants: list[Mutant], cores: int) -> Iterator[tuple[Mutant, Verdict | None]]:
    pool = ProcessPoolExecutor(cores)
    try:
        yield from zip(mutants, pool.map(by_worlds, mutants), strict=True)
    finally:
        # A run whose time is over does not wait for mutants that have not begun.
        pool.shutdown(cancel_futures=True)


# --- tests -----------------------------------------------------------------------------------------------------------


def _files() -> Iterator[Path]:
    """The tests of the ledgers, and the others that run on both engines."""
    for file in sorted((ROOT / "tests" / "contract").glob("test_*.py")):
        if file.stem.startswith("test_ledger_") or "engine_fixture()" in file.read_text(encoding="utf-8"):
            yield file


def judged_by_tests(
    mutants: list[Mutant], met: list[str], killers: list[str], judges: int
) -> Iterator[tuple[str, Verdict]]:
    """One pytest for all of them; a verdict is given as soon as there is one."""
    asked = [str(file) for file in _files() if not file.stem.endswith(_NOT_ASKED)]
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "mutants.json"
        given.write_bytes(msgspec.json.encode({"todo": mutants, "met": met}))
        out = given.with_suffix(".out")
        out.touch()
        command = [sys.executable, "-m", "pytest", "-p", "tests.simulation.mutant_judge", "-q", "--workers", "0"]
        command += ["--mutants", str(given), "--judges", str(judges), "--killers", *killers]
        command += ["-m", "not slow", *asked]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            with out.open("rb") as lines:
                while True:
                    ended = child.poll() is not None
                    for line in lines:
                        found = msgspec.json.decode(line)
                        yield found["key"], Verdict(found["by"], found["said"])
                    if ended:
                        break
                    time.sleep(0.2)
            if child.returncode not in (0, 5):
                raise RuntimeError(f"pytest ended with {child.returncode}")
        finally:
            if child.poll() is None:
                child.terminate()
                child.wait()


# --- the page --------------------------------------------------------------------------------------------------------


def main() -> int:
    """Judge the mutants of which nothing is known yet, and write the page from all that is known."""
    options = _asked()
    known = {} if options.again else _known()
    mutants = every_mutant(options.engine, options.only)
    over = time.monotonic() + options.minutes * 60
    # Those first of which nobody knows why they would survive.
    todo = sorted((one for one in mutants if not _ended(known.get(one.key))), key=lambda one: why(one) != UNKNOWN)
    sys.stdout.write(f"{len(mutants)} mutants, {len(todo)} of them not judged yet\n")
    try:
        for key, verdict in _judged(todo, known, options.cores):
            known[key] = verdict
            _keep(known)
            _say(key, verdict)
            if time.monotonic() > over:
                break
    finally:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), _keep(known)), encoding="utf-8")
    return 0


def _ended(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.said != NEAR


def _keep(known: Verdicts) -> Verdicts:
    """After each verdict, because a run may end at any time; what is no longer in any statement is forgotten."""
    names = {one.key for one in every_mutant(list(STATEMENTS), [])}
    kept = {key: verdict for key, verdict in sorted(known.items()) if key in names}
    KNOWN.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    return kept


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--engine", nargs="*", default=list(STATEMENTS), choices=list(STATEMENTS))
    parser.add_argument("--only", nargs="*", default=[], help="these statements")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no other mutant after so long (60)")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="judge those, too, of which a verdict is known")
    return parser.parse_args()


def _known() -> Verdicts:
    return msgspec.json.decode(KNOWN.read_bytes(), type=Verdicts) if KNOWN.exists() else {}


def _judged(todo: list[Mutant], known: Verdicts, cores: int) -> Iterator[tuple[str, Verdict]]:
    """Worlds first, because they cost less; who survives them, and who is of PostgreSQL, meets the tests."""
    met = {key for key, verdict in known.items() if verdict.said == NEAR}
    fresh = [one for one in todo if one.engine == "sqlite" and one.key not in met]
    left = [one for one in todo if one not in fresh]
    for mutant, verdict in judged_by_worlds(fresh, cores):
        if verdict is None:
            left.insert(0, mutant)
        else:
            yield mutant.key, verdict
    if left:
        told = [(key.split(" ")[1], str(verdict.by)) for key, verdict in known.items()]
        killers = [f"{statement} {by}" for statement, by in dict.fromkeys(told) if "::" in by]
        yield from judged_by_tests(left, sorted(met), killers, JUDGES_PER_CORE * cores)


def _say(key: str, verdict: Verdict) -> None:
    engine, statement, _, _, condition = key.split(" ", 4)
    word = "killed" if verdict.by else "left" if verdict.said == NEAR else "SURVIVES"
    sys.stdout.write(f"{word:<8} {engine} {statement}: {condition}\n")
    if verdict.by is not None:
        sys.stdout.write(f"         {verdict.by}: {verdict.said}\n")
    sys.stdout.flush()


def page(before: str, known: Verdicts) -> str:
    """The page with new tables; what stands before them stays."""
    mutants = [one for one in every_mutant(list(STATEMENTS), []) if known.get(one.key, Verdict(None)).by != NO_SQL]
    judged = [(one, known[one.key]) for one in mutants if one.key in known]
    lines = [MISSED, ""]
    for engine in STATEMENTS:
        own = [verdict for one, verdict in judged if one.engine == engine and _ended(verdict)]
        near = sum(one.engine == engine and not _ended(verdict) for one, verdict in judged)
        missed = sum(verdict.by is not None for verdict in own)
        every = sum(one.engine == engine for one in mutants)
        lines.append(
            f"- {_TITLES[engine]}: {every} conditions, {len(own)} judged, {missed} missed, {len(own) - missed} not;"
            f" {near} have met only the nearest tests, which do not miss them."
        )
    lines += ["", "| statement | without | who misses it | what it said |", "| --- | --- | --- | --- |"]
    lines += [f"| {_named(one)} | {_who(verdict)} | {_plain(verdict.said)} |" for one, verdict in judged if verdict.by]
    lines += ["", "## Survivors", "", "| statement | without | why nobody misses it |", "| --- | --- | --- |"]
    lines += [f"| {_named(one)} | {why(one)}{_only(verdict)} |" for one, verdict in judged if not verdict.by]
    return before.partition(MISSED)[0] + "\n".join([*lines, ""])


def _only(verdict: Verdict) -> str:
    return "" if _ended(verdict) else " (the nearest tests)"


_TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def _named(mutant: Mutant) -> str:
    engine = "" if mutant.engine == "sqlite" else ", PostgreSQL"
    again = f", the {mutant.nth}." if mutant.nth > 1 else ""
    return f"`{mutant.statement}`{engine} | {_cell(mutant.condition)}{again}"


def _who(verdict: Verdict) -> str:
    by = str(verdict.by)
    return f"`{by.rpartition('/')[2].partition('[')[0]}`" if "::" in by else by


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")[:120]


def _cell(text: str) -> str:
    shown = text if len(text) <= 100 else f"{text[:97]}..."
    return f"`{shown}`".replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
