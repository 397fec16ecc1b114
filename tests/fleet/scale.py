"""What a notification costs, measured on a real ledger, and how a plan of many machines would queue, played.

    python -m tests.fleet.scale [NOTIFICATIONS]

prints both tables of docs/explanation/scale.md.
"""

import asyncio
import heapq
import math
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg

from tests.support.daemon import children_of
from tests.support.process import Program
from tests.support.servers import Postgres
from tests.support.stand import Rules, Stand

MOST = 4_000
_TICKS = 100.0
_SIZES = """
SELECT c.relname, pg_table_size(c.oid), pg_indexes_size(c.oid), s.n_tup_ins FROM pg_class c
JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.relkind = 'r' AND s.n_tup_ins > 0 ORDER BY 2 DESC
"""


@dataclass(frozen=True)
class Cost:
    """Of one notification with one webhook, from its request to its end."""

    process_ms: float
    ledger_ms: float
    log_bytes: float
    table_bytes: float
    index_bytes: float
    rows: float


async def cost(notifications: int) -> Cost:
    """Accepted over HTTP, sent and settled by one process of `local`; sizes after everything has ended."""
    with Postgres(durable=True) as postgres, TemporaryDirectory(prefix="cn-scale-") as folder:
        dsn = postgres.database()
        async with Stand(Path(folder) / "stand", dsn, Rules(lease=30.0, timeout=20.0, concurrency=100)) as stand:
            program = await stand.start()
            await stand.send(stand.webhooks(f"warm{number}" for number in range(200)))
            await stand.until_terminal(200)
            connection = await asyncpg.connect(dsn)
            at_first = await _state(connection, program, postgres)
            await stand.send(stand.webhooks(f"m{number}" for number in range(notifications)), at_once=64, within=600)
            await stand.until_terminal(notifications + 200, within=600)
            # The statistics of tables come a moment later.
            await asyncio.sleep(2)
            at_last = await _state(connection, program, postgres)
            await connection.close()
        each = [(after - before) / notifications for before, after in zip(at_first, at_last, strict=True)]
        return Cost(each[0] * 1000, each[1] * 1000, *each[2:])


async def _state(connection: asyncpg.Connection, program: Program, postgres: Postgres) -> list[float]:
    await connection.execute("CHECKPOINT")
    tables = await connection.fetch(_SIZES)
    log = await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'")
    own = _processor(program.pid)
    ledger = sum(_processor(pid) for pid in (postgres.pid, *children_of(postgres.pid)))
    return [own, ledger, float(log), *(float(sum(row[place] for row in tables)) for place in (1, 2, 3))]


def _processor(pid: int) -> float:
    """Seconds of processor time, with those of children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(fields[place]) for place in (11, 12, 13, 14)) / _TICKS


@dataclass(frozen=True)
class Step:
    """One size of the plan: ledgers over which tenants are spread, and what each can take."""

    load: float
    ledgers: int
    capacity: float
    """Notifications a second that one ledger and its processes take."""
    tenants: int


def played(step: Step, seconds: float = 20.0, seed: int = 1) -> tuple[float, float, float]:
    """The busiest ledger's share of its capacity, and the median and the slowest hundredth of waits, in milliseconds.

    Tenants differ as 1/rank in what they send. A tenant that would fill more than a quarter of a ledger is split into
    equal parts. Each part goes to the ledger that is least loaded so far, largest first, as an operator would place
    them. Arrivals come at random; a ledger takes them one after another.
    """
    busiest = _busiest(step, step.capacity / 4)
    waits = _waits(busiest, step.capacity, seconds, random.Random(seed))
    return busiest / step.capacity, statistics.median(waits), waits[int(len(waits) * 0.99)]


def unsplit(step: Step) -> float:
    """The busiest ledger's share of its capacity if no tenant is split."""
    return _busiest(step, math.inf) / step.capacity


def _busiest(step: Step, most: float) -> float:
    weights = [1.0 / rank for rank in range(1, step.tenants + 1)]
    scale = step.load / sum(weights)
    parts = [part for weight in weights for part in _split(weight * scale, most)]
    ledgers = [(0.0, number) for number in range(step.ledgers)]
    for part in sorted(parts, reverse=True):
        carried, number = ledgers[0]
        heapq.heapreplace(ledgers, (carried + part, number))
    return max(carried for carried, _ in ledgers)


def _split(load: float, most: float) -> list[float]:
    pieces = max(1, math.ceil(load / most))
    return [load / pieces] * pieces


def _waits(load: float, capacity: float, seconds: float, dice: random.Random) -> Sequence[float]:
    now, free = 0.0, 0.0
    waits: list[float] = []
    most = 200_000
    while now < seconds and len(waits) < most:
        now += dice.expovariate(load)
        begins = max(now, free)
        free = begins + dice.expovariate(capacity)
        waits.append((free - now) * 1000)
    return sorted(waits)


PLAN = (
    Step(200, 1, 400, 100),
    Step(2_000, 8, 400, 1_000),
    Step(20_000, 24, 1_500, 10_000),
    Step(200_000, 240, 1_500, 100_000),
    Step(1_000_000, 1_200, 1_500, 1_000_000),
)


def main(notifications: int) -> None:
    for name, value in asdict(asyncio.run(cost(notifications))).items():
        sys.stdout.write(f"{name}: {value:.2f}\n")
    for step in PLAN:
        sys.stdout.write(row(step) + "\n")
    for step in PLAN:
        sys.stdout.write(f"without splits, {step.load:,} a second: {unsplit(step):,.0%}\n")


def row(step: Step) -> str:
    """The step's line in docs/explanation/scale.md."""
    busy, median, slow = played(step)
    sizes = f"{step.load:,.0f} | {step.ledgers:,} | {step.capacity:,.0f} | {step.tenants:,}"
    return f"| {sizes} | {round(busy * 100)} % | {median:.1f} | {slow:.1f} |"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MOST)
