"""Compares producers' journals, vendors' ledgers, tables and streams after a run; knows nothing of the program.

    python tests/fleet/checker.py FOLDER

reads what a run has left in FOLDER (`stores.json`, `windows.jsonl`, `journal-*.jsonl`, the ledgers) and prints figures.
"""

import asyncio
import json
import re
import sqlite3
import sys
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg
import redis

SLACK = 0.5
"""Seconds by which the clocks of two processes' notes about one moment may differ."""
_ENGINE = """
SELECT n.idempotency_key, n.notification_id, r.route_id, r.status,
       coalesce(r.published_at, r.dead_lettered_at, r.skipped_at) AS ended
FROM records n LEFT JOIN routes r ON r.notification_id = n.notification_id
"""
_TWICE = """
SELECT notification_id, route_id FROM attempts_told WHERE settled <> 'stale' AND verdict IN ('finish', 'bury')
GROUP BY notification_id, route_id HAVING count(*) > 1
"""
_PAID_TWICE = "SELECT subscription_id FROM payments WHERE status = 'success' GROUP BY 1 HAVING count(*) > 1"
_SUBSCRIPTIONS = "SELECT user_id, subscription_id, 'subscription', status, started_at FROM subscriptions"
_AUDIT = "SELECT trace_id, trace_id, 'push', status, created_at FROM audit_logs ORDER BY audit_id"
MOST_SECONDS = 240.0
"""For one look into a store: one that does not answer must not keep the figures of the others back."""
WRONGS = (
    *("lost", "split", "unfinished", "given_up", "never_sent"),
    *("settled_twice", "renamed", "unexplained", "over_bound", "unread"),
)
INTENTS = "notification:intents"
_OPEN = {"pending", "failed", "processing", "retrying", "not_pushed", None}
_GIVEN_UP = {"dead_letter"}


@dataclass
class Work:
    """One accepted piece of work: what its producer was told, where it is now, and when it was sent."""

    key: str
    answered: float
    ids: set[str] = field(default_factory=set)
    rows: set[str] = field(default_factory=set)
    statuses: dict[str, str | None] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    sends: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def open(self) -> bool:
        return not self.statuses or any(status in _OPEN for status in self.statuses.values())


@dataclass(frozen=True)
class Window:
    """One fault: from `began` until it is healed at `ended`; it strikes in [`struck`, `until`]."""

    fault: str
    began: float
    ended: float
    struck: float
    until: float


@dataclass
class Cell:
    """What one fault did to one crew."""

    accepted: int = 0
    lost: int = 0
    repeated: int = 0
    in_flight: int = 0
    late: float = 0.0
    unavailable: float = 0.0


@dataclass
class Figures:
    """Of one crew over the whole run; lists hold examples of what must not be."""

    crew: str
    offered: int = 0
    accepted: int = 0
    sends: int = 0
    lost: list[str] = field(default_factory=list)
    split: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)
    never_sent: list[str] = field(default_factory=list)
    settled_twice: list[str] = field(default_factory=list)
    renamed: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    over_bound: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Why the store of this crew could not be read."""
    gone: list[str] = field(default_factory=list)
    """Of the lost ones: what the producer's own Redis no longer has, so that nobody could have read it."""
    repeats: int = 0
    last_ended: float = 0.0
    windows: dict[str, Cell] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return not any(getattr(self, name) for name in WRONGS)


def lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines: a producer that was killed in mid-line promised nothing by it."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines() if line.strip()]


async def rows(url: str, schema: str, statement: str) -> list[tuple[Any, ...]]:
    """From the server that takes writes today, in one snapshot."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=40)) as file:
            return file.execute(statement).fetchall()
    settings = {"search_path": schema or "public"}
    connection = await asyncpg.connect(url, server_settings=settings, timeout=40, command_timeout=MOST_SECONDS)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


def moment(value: Any) -> float:
    """Seconds since the epoch, of either engine's times."""
    if value is None:
        return 0.0
    return value / 1000 if isinstance(value, int | float) else float(value.timestamp())


Send = tuple[str, str, float]
"""The key of the work, the id that the send carries, and when the vendor took it."""


def sends_of(crew: str, folder: Path, store: dict[str, Any]) -> Iterable[Send]:
    """What the vendor of this crew took."""
    if crew.startswith("local"):
        return _hooks(crew, folder / "hooks.jsonl")
    if crew == "listo":
        return (_mail(entry) for entry in _taken(folder / "mail.jsonl") if entry["method"] == "POST")
    if crew == "push-worker":
        return map(_push, _taken(folder / "fcm.jsonl"))
    if crew == "sse":
        return ((entry["id"], entry["id"], entry["time_us"] / 1e6) for entry in _taken(folder / "heard.jsonl"))
    return _streams(store["redis"]) if crew == "galaxy" else ()


def _hooks(crew: str, ledger: Path) -> Iterable[Send]:
    for entry in _taken(ledger):
        _, owner, key = entry["path"].split("/", 2)
        if owner == crew:
            yield key, str(entry["id"]), entry["time_us"] / 1e6


def _mail(entry: dict[str, Any]) -> Send:
    mail = json.loads(entry["body"])
    address = mail["personalizations"][0]["to"][0]["email"]
    carried = sorted(value for name, value in mail["custom_args"].items() if "notification" in name)
    return address.partition("@")[0], carried[0], entry["time_us"] / 1e6


def _push(entry: dict[str, Any]) -> Send:
    device = json.loads(entry["body"])["to"]
    return device.removeprefix("device_token_"), device, entry["time_us"] / 1e6


def _streams(url: str) -> Iterable[Send]:
    client: Any = redis.Redis.from_url(url, socket_timeout=MOST_SECONDS)
    for stream, name in (("gateway:client-events", b"event_id"), ("mail:delivery_commands", b"delivery_id")):
        for entry_id, fields in client.xrange(stream):
            sent = fields[name].decode()
            key = re.search(r"user:user-(.*)$", sent)
            yield key[1] if key else sent, sent, int(entry_id.partition(b"-")[0]) / 1000
    client.close()


def gone(url: str, works: Iterable[Work]) -> list[str]:
    """The work of which today's primary of Redis has no entry: a replica had it, and another one was promoted."""
    client: Any = redis.Redis.from_url(url, socket_timeout=MOST_SECONDS)
    found = [work.key for work in works if not any(client.xrange(INTENTS, entry, entry) for entry in work.ids)]
    client.close()
    return found


def _taken(path: Path) -> Iterable[dict[str, Any]]:
    # A refusal, a reset and a hang had no effect and are rightly tried again.
    return (entry for entry in lines(path) if 200 <= int(entry.get("status", 0)) < 300)


async def gather(crew: str, folder: Path, store: dict[str, Any], figures: Figures) -> dict[str, Work]:
    """The journal is read before the tables: the other order would call lost what was accepted in between."""
    works: dict[str, Work] = {}
    offered = set()
    for line in lines(folder / f"journal-{crew}.jsonl"):
        offered.add(line["key"])
        if line["status"] == "accepted":
            work = works.setdefault(line["key"], Work(line["key"], line["answered"]))
            work.ids.add(str(line["id"]))
    figures.offered, figures.accepted = len(offered), len(works)
    statement = {"billing": _SUBSCRIPTIONS, "push-worker": _AUDIT}.get(crew, _ENGINE)
    for key, own_id, route, status, ended in await rows(store["url"], store["schema"], statement):
        if str(key) in works:
            work = works[str(key)]
            work.rows.add(str(own_id))
            if route is not None:
                work.statuses[route] = status
                work.ended[route] = moment(ended)
    for key, sent, at in sends_of(crew, folder, store):
        figures.sends += 1
        if key in works:
            works[key].sends[sent].append(at)
    return works


async def settled_twice(crew: str, store: dict[str, Any]) -> list[str]:
    if crew in {"push-worker", "galaxy"}:
        # Neither writes its attempts down; their sends are counted instead.
        return []
    statement = _PAID_TWICE if crew == "billing" else _TWICE
    return [str(row) for row in await rows(store["url"], store["schema"], statement)]


def judge(figures: Figures, works: dict[str, Work], *, by_id: bool, sent: bool) -> None:
    for work in works.values():
        if not work.rows or (by_id and not work.ids <= work.rows):
            figures.lost.append(work.key)
            continue
        if len(work.rows) > 1 or (by_id and len(work.ids) > 1):
            figures.split.append(work.key)
        if work.open:
            figures.unfinished.append(f"{work.key}: {work.statuses}")
        if _GIVEN_UP & {str(status) for status in work.statuses.values()}:
            figures.given_up.append(work.key)
        if sent and not work.open and not work.sends:
            figures.never_sent.append(work.key)
        figures.last_ended = max(figures.last_ended, *work.ended.values(), 0.0)


def count_repeats(figures: Figures, works: dict[str, Work], windows: list[Window]) -> None:
    """Each repeat belongs to the first fault that lay between the send before it and itself."""
    spans: list[tuple[float, float]] = []
    for work in works.values():
        end = max(work.ended.values(), default=0.0)
        routes = max(1, len(work.statuses))
        if len(work.sends) > routes:
            figures.renamed.append(f"{work.key}: {sorted(work.sends)[:3]}")
        for times in work.sends.values():
            times.sort()
            spans.append((times[0], end))
            for before, after in pairwise(times):
                figures.repeats += 1
                met = [each for each in windows if each.struck - SLACK <= after and each.until + SLACK >= before]
                if met:
                    figures.windows[met[0].fault].repeated += 1
                else:
                    figures.unexplained.append(f"{work.key}: sent at {before:.2f} and {after:.2f}")
    for window in windows:
        cell = figures.windows[window.fault]
        cell.in_flight += sum(start <= window.until + SLACK and end >= window.struck - SLACK for start, end in spans)
    figures.over_bound = [
        f"{fault}: {cell.repeated} repeats of {cell.in_flight} in flight"
        for fault, cell in figures.windows.items()
        if cell.repeated > cell.in_flight
    ]


def count_times(figures: Figures, works: dict[str, Work], windows: list[Window]) -> None:
    """How late the work of each window ended, and how long nobody was accepted in it."""
    in_order = sorted(works.values(), key=lambda work: work.answered)
    answers = [work.answered for work in in_order]
    lost = set(figures.lost)
    for window in windows:
        cell = figures.windows[window.fault]
        first, last = bisect_left(answers, window.began), bisect_right(answers, window.ended)
        mine = in_order[first:last]
        cell.accepted += len(mine)
        cell.lost += sum(work.key in lost for work in mine)
        ends = [max(work.ended.values()) - work.answered for work in mine if work.ended and not work.open]
        cell.late = round(max([cell.late, *ends]), 2)
        # The gap in which a window begins, and the one in which it ends, count whole.
        gaps = [after - before for before, after in pairwise(answers[max(0, first - 1) : last + 1])]
        cell.unavailable = round(max([cell.unavailable, *gaps]), 2)


async def check(folder: Path) -> dict[str, Figures]:
    """The figures of each crew."""
    windows = [Window(**line) for line in lines(folder / "windows.jsonl")]
    found: dict[str, Figures] = {}
    for crew, store in json.loads((folder / "stores.json").read_text()).items():
        figures = found[crew] = Figures(crew, windows={window.fault: Cell() for window in windows})
        try:
            works = await gather(crew, folder, store, figures)
            figures.settled_twice = await settled_twice(crew, store)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.Error, redis.RedisError) as error:
            figures.unread.append(f"{type(error).__name__}: {error}")
            continue
        judge(figures, works, by_id=crew.startswith(("local", "listo", "billing")), sent=crew != "billing")
        if crew == "galaxy" and figures.lost:
            figures.gone = gone(store["redis"], [works[key] for key in figures.lost])
        count_repeats(figures, works, windows)
        count_times(figures, works, windows)
    return found


def read(text: str) -> dict[str, Figures]:
    """The figures that another process printed."""
    found: dict[str, Figures] = {}
    for crew, each in json.loads(text).items():
        windows = {fault: Cell(**cell) for fault, cell in each.pop("windows").items()}
        found[crew] = Figures(**each, windows=windows)
    return found


if __name__ == "__main__":
    result = asyncio.run(check(Path(sys.argv[1])))
    json.dump({crew: asdict(figures) for crew, figures in result.items()}, sys.stdout, indent=1)
    sys.exit(not all(figures.sound for figures in result.values()))
