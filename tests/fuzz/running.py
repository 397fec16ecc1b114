"""Runs the readers of one process: seeds, a limit of processor time for each input, of memory for all, and a table."""

import contextlib
import fcntl
import gc
import logging
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from carillon.web import Problem
from tests.fuzz.guided import Reached
from tests.fuzz.mutation import Mutator

LIMIT_SECONDS = 1.0
MOST_GROWTH_KIB = 64 * 1024
MOST_FINDINGS = 3
"""Of one reader: the first ones say enough."""
LEARNED = 2000
"""So many inputs at most are watched for what they reach; watching costs about ten times as much."""
SERVER_ERROR = 500
READ, REFUSED = "read", "refused"


class Target(NamedTuple):
    """One reader, honest inputs for it, and the exceptions by which it refuses; it may answer with a word."""

    call: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    refusals: tuple[type[Exception], ...] = ()


class Hang(BaseException):
    """One input takes longer than LIMIT_SECONDS of processor time."""


class Finding(NamedTuple):
    """An input that did something else than being read or refused."""

    target: str
    seed: int
    body: bytes
    error: str


class Row(msgspec.Struct, kw_only=True):
    """What became of the inputs of one reader, listener or queue."""

    name: str
    tried: int = 0
    answers: dict[str, int] = {}
    slowest_seconds: float = 0.0
    grown_kib: int = 0
    stored: int | None = None
    """Rows that came of refused inputs; None where there is no store."""
    late: int = 0
    """Inputs that took more than LIMIT_SECONDS, or whose /health said 503, once and not when they were asked again."""
    found: int = 0

    def count(self, word: str, many: int = 1) -> None:
        self.answers[word] = self.answers.get(word, 0) + many

    def add(self, other: "Row") -> None:
        self.tried += other.tried
        for word, many in other.answers.items():
            self.count(word, many)
        self.slowest_seconds = max(self.slowest_seconds, other.slowest_seconds)
        self.grown_kib = max(self.grown_kib, other.grown_kib)
        if other.stored is not None:
            self.stored = (self.stored or 0) + other.stored
        self.late += other.late
        self.found += other.found

    def cells(self) -> list[str]:
        said = ", ".join(f"{word} {many:,}" for word, many in sorted(self.answers.items()))
        stored = "-" if self.stored is None else f"{self.stored:,}"
        slowest = f"{self.slowest_seconds * 1000:,.0f} ms"
        return [
            self.name,
            f"{self.tried:,}",
            said,
            slowest,
            f"{self.late:,}",
            f"{self.grown_kib / 1024:.0f} MiB",
            stored,
            str(self.found),
        ]


HEAD = ["fed", "tried", "answers", "slowest", "late once", "memory", "stored", "found"]


def table(rows: Sequence[Row]) -> str:
    """The rows and their sum, in columns."""
    whole = Row(name="all")
    for row in rows:
        whole.add(row)
    whole.answers = {}
    lines = [HEAD, *(row.cells() for row in rows), whole.cells()]
    widths = [max(len(line[place]) for line in lines) for place in range(len(HEAD))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if name in {"fed", "answers"} else cell.rjust(width)
            for cell, width, name in zip(line, widths, HEAD, strict=True)
        ).rstrip()
        for line in lines
    )


class Counts:
    """The rows of all runs, kept in a file from run to run."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.rows: dict[str, Row] = {}
        self._read()

    @property
    def total(self) -> int:
        return sum(row.tried for row in self.rows.values())

    def add(self, row: Row) -> None:
        """Add a row to what the file holds now: two runs may go on side by side."""
        if self._path is None:
            self.rows.setdefault(row.name, Row(name=row.name)).add(row)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._read()
            self.rows.setdefault(row.name, Row(name=row.name)).add(row)
            self._path.write_bytes(msgspec.json.format(msgspec.json.encode(list(self.rows.values())), indent=1))

    def _read(self) -> None:
        if self._path is not None and self._path.exists():
            self.rows = {row.name: row for row in msgspec.json.decode(self._path.read_bytes(), type=list[Row])}


@contextlib.contextmanager
def hangs_end() -> Iterator[Callable[[], None]]:
    """Raises Hang where the time since the last call of what it gives is over."""

    def over(*_: object) -> None:
        raise Hang

    def begin() -> None:
        signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)

    before = signal.signal(signal.SIGPROF, over)
    try:
        yield begin
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def refused(error: Exception, target: Target) -> bool:
    """Whether the target may say no in this way; a problem of ours (5xx) is none."""
    return isinstance(error, target.refusals) and (not isinstance(error, Problem) or error.status < SERVER_ERROR)


def feed(target: Target, body: bytes) -> tuple[str, str | None]:
    """What one input is answered, and what is wrong about that."""
    try:
        answer = target.call(body)
    except Hang:
        return "hang", f"took more than {LIMIT_SECONDS:g} s of processor time"
    except Exception as error:  # noqa: BLE001 - everything that is no refusal is what we look for
        return (REFUSED, None) if refused(error, target) else ("raised", f"{type(error).__name__}: {error}")
    return answer if isinstance(answer, str) else READ, None


def resident_kib(pid: int | str = "self") -> int:
    """The memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def run_target(name: str, target: Target, seed: int, number: int, seconds: float) -> tuple[Row, list[Finding]]:
    """Feed a target `number` inputs, for so many seconds at most. The first ones are watched: seeds grow from them."""
    mutator = Mutator(Random(f"{name}/{seed}"), target.seeds)
    ends = time.monotonic() + seconds
    row, findings, reached = Row(name=name), list[Finding](), Reached()
    watched = min(LEARNED, number // 4)
    gc.collect()
    before = resident_kib()
    with hangs_end() as begin:
        while row.tried < number and len(findings) < MOST_FINDINGS and (row.tried % 64 or time.monotonic() < ends):
            body = mutator.next()
            begin()
            row.tried += 1
            began = time.process_time()
            if row.tried <= watched:
                with reached:
                    answer, wrong = feed(target, body)
                if reached.news():
                    mutator.learn(body)
            else:
                answer, wrong = feed(target, body)
                row.slowest_seconds = max(row.slowest_seconds, time.process_time() - began)
            row.count(answer)
            if wrong is not None:
                findings.append(Finding(name, seed, body, wrong))
    gc.collect()
    row.grown_kib = max(0, resident_kib() - before)
    if row.grown_kib > MOST_GROWTH_KIB:
        findings.append(Finding(name, seed, b"", f"the process grew by {row.grown_kib // 1024} MiB"))
    row.found = len(findings)
    return row, findings


def run(
    targets: Mapping[str, Target],
    counts: Counts,
    *,
    seed: int,
    number: int,
    seconds: float,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[list[Row], list[Finding]]:
    """Feed each target its share."""
    rows: list[Row] = []
    findings: list[Finding] = []
    # What the package logs about hostile input is not what is looked at here.
    logging.disable(logging.CRITICAL)
    try:
        for name, target in targets.items():
            began = time.monotonic()
            row, found = run_target(name, target, seed, max(1, number // len(targets)), seconds / len(targets))
            counts.add(row)
            rows.append(row)
            findings += found
            rate = row.tried / max(0.001, time.monotonic() - began)
            say(f"{name:20} {row.tried:9,} inputs, {rate:8,.0f} a second, {len(found)} found")
    finally:
        logging.disable(logging.NOTSET)
    return rows, findings
