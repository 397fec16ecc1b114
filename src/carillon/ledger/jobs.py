"""Jobs of list queues: the log of each message in a Redis list and in SQL, and the effects that run once."""

import asyncio
import datetime as dt
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec

from carillon.border import clean_text
from carillon.domain.claims import Settlement
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.jobs import Effect, JobLedger, JobMessage, JobRow, moment
from carillon.domain.ports import Clock, Observer
from carillon.domain.store import Ask, Engine, Row, Steps
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Skip

_FILTERS = ("queue", "status", "correlation_id", "idempotency_key", "before_us", "before_id")
_TIMES = ("next_retry_at", "created_at", "updated_at")


class JobStore:
    """Satisfies JobLedger and Effects."""

    engine: Engine

    async def write_job_logs(self, rows: Sequence[JobRow]) -> None:
        if rows:
            # A repeat changes nothing.
            given = [msgspec.structs.asdict(row) for row in rows]
            await self.engine.write("write_job_logs", each=given, repeatable=True, pool="intake")

    async def job_logs(self, filters: Mapping[str, Any], limit: int) -> list[Row]:
        values = {**{name: filters.get(name) for name in _FILTERS}, "limit": limit}
        return [_with_times(row) for row in await self.engine.rows("job_logs", values)]

    async def begin_effect(self, key: str, holder: str, seconds: float) -> Effect:
        values = {"key": key, "holder": holder, "seconds": seconds}
        if await self.engine.write("begin_effect", values, repeatable=True, pool="intake"):
            return "begun"
        found = await self.engine.one("effect_done", {"key": key}, pool="intake")
        return "done" if found is not None and found["done"] else "busy"

    async def finish_effect(self, key: str, holder: str) -> None:  # noqa: ARG002 - any holder may finish
        await self.engine.write("finish_effect", {"key": key}, repeatable=True, pool="intake")

    async def abandon_effect(self, key: str, holder: str) -> None:
        await self.engine.write("abandon_effect", {"key": key, "holder": holder}, repeatable=True, pool="intake")

    async def prune_jobs(self, older_than_seconds: float, limit: int) -> int:
        values = {"older_than_seconds": older_than_seconds, "limit": limit}

        def steps() -> Steps[int]:
            effects = yield Ask("prune_effects", values)
            return max(len(effects), len((yield Ask("prune_jobs", values))))

        return await self.engine.change(steps, repeatable=True)


def _with_times(row: Row) -> Row:
    for name in _TIMES:
        if row[name] is not None:
            row[name] = dt.datetime.fromtimestamp(row[name] / 1000, dt.UTC)
    return row


MOST_ROWS = 20_000
MOST_ENTRIES = 10_000
ROWS_AT_ONCE = 500
EVERY_SECONDS = 0.1
LONGEST_WAIT = 5.0
LONGEST_ERROR = 2000
LONGEST_WORD = 500
MOST_ATTEMPTS = 2**31 - 1
NO_MESSAGE = JobMessage("", "", 0, {})
_encode = msgspec.json.Encoder().encode


class EntrySink(Protocol):
    """Writes entries that no other script carries."""

    async def logged(self, entries: Sequence[str]) -> None:
        """Raises LedgerUnavailable."""
        ...


class JobLogs:
    """Collects entries and rows and writes them in the background; bounded, the oldest are dropped."""

    def __init__(
        self, *, service: str, clock: Clock, observer: Observer, sink: EntrySink, ledger: JobLedger | None = None
    ) -> None:
        self._service = service
        self._clock = clock
        self._observe = observer
        self._sink = sink
        self._ledger = ledger
        self._entries: deque[str] = deque(maxlen=MOST_ENTRIES)
        self._rows: dict[tuple[str, str], JobRow] = {}
        self._forgotten = 0
        self._stamp = (0, "")
        self._flushing = asyncio.Lock()
        self._writing = asyncio.Lock()

    def started(self, queue: str, message: JobMessage, now: float) -> None:
        self._entries.append(self._entry(queue, message, "start", message.attempts, {}))
        self._row(queue, message, "processing", message.attempts, now)

    def busy(self, queue: str, message: JobMessage, now: float) -> None:  # noqa: ARG002 - the row is its holder's
        self._entries.append(self._entry(queue, message, "retry", message.attempts, {"reason": "lock_unavailable"}))

    def idle(self, queue: str) -> None:
        """A tick found no message; only the entry says so, as there is no message that a row could be about."""
        self._entries.append(self._entry(queue, NO_MESSAGE, "no_message", 0, {}))

    def received(self, queue: str, message: JobMessage, now: float) -> None:
        self._row(queue, message, "received", 0, now)

    def gone(self, queue: str, message: JobMessage, now: float) -> None:
        """The cleanup trimmed the message from the failed list: nobody can requeue it any more."""
        self._row(queue, message, "dead", message.attempts, now)

    def invalid(self, queue: str, message: JobMessage) -> str:
        """The entry of a text that is not a valid message."""
        now = self._clock.wall()
        self._row(queue, message, "failed", 0, now, error="invalid_message")
        return self._entry(queue, message, "failed", 0, {"error": "invalid_message"})

    def swept(self, queue: str, message: JobMessage, delay: float | None) -> str:
        """The entry of a message whose worker died."""
        error, status = "its worker died", "failed" if delay is None else "retry"
        info = {"error": error} if delay is None else {"error": error, "delay": round(delay, 3)}
        return self._entry(queue, message, status, message.attempts + 1, info)

    def swept_row(self, queue: str, message: JobMessage, now: float, score: float | None) -> None:
        status = "failed" if score is None else "retry"
        self._row(queue, message, status, message.attempts + 1, now, error="its worker died", retry_at=score)

    def entry_of(self, each: Settlement, delay: float) -> str:
        """The entry of an applied settlement; empty for a deferral."""
        place = each.claim.place
        match each.verdict:
            case Finish():
                return self._entry(place.queue, place.message, "success", place.message.attempts, {})
            case Retry() | FailOver():
                info = {"error": _error(each), "delay": round(delay, 3)}
                return self._entry(place.queue, place.message, "retry", each.claim.attempt, info)
            case Bury():
                return self._entry(place.queue, place.message, "failed", _runs(each), {"error": _error(each)})
            case Skip(gate):
                return self._entry(place.queue, place.message, "skipped", _runs(each), {"error": gate})
            case Defer():
                return ""

    def settled(self, each: Settlement, now: float, score: float | None) -> None:
        """Remember the row of an applied settlement."""
        place = each.claim.place
        queue, message = place.queue, place.message
        match each.verdict:
            case Finish():
                self._row(queue, message, "success", message.attempts, now)
            case Retry() | FailOver():
                self._row(queue, message, "retry", each.claim.attempt, now, error=_error(each), retry_at=score)
            case Bury():
                self._row(queue, message, "failed", _runs(each), now, error=_error(each))
            case Skip(gate):
                self._row(queue, message, "skipped", _runs(each), now, error=gate)
            case Defer():
                self._row(
                    queue, message, "received" if score is None else "retry", message.attempts, now, retry_at=score
                )

    async def pending(self) -> list[str]:
        """Entries that the next script writes before its own."""
        # Entries in flight must arrive first: a start must not be logged after its end.
        async with self._flushing:
            return self._taken()

    async def run(self) -> None:
        """Write what was collected, repeatedly, until cancelled."""
        wait = EVERY_SECONDS
        while True:
            await self._clock.sleep(wait)
            wait = EVERY_SECONDS if await self.flush() else min(wait * 2, LONGEST_WAIT)

    async def flush(self) -> bool:
        """Write everything collected so far; False when something could not be written and is kept."""
        await self._write_entries()
        return await self._write_rows()

    async def leave(self, seconds: float) -> None:
        """Write the rest after the writes in flight, for at most `seconds`, even if a server does not answer."""
        writing = [asyncio.create_task(self._write_entries()), asyncio.create_task(self._write_rows())]
        _, silent = await asyncio.wait(writing, timeout=seconds)
        for task in silent:
            # Do not wait for the task: a statement in flight may end only with its connection.
            task.cancel()
        if silent:
            self._observe(Trouble(where="job_logs", error=f"not every row was written within {seconds:.1f} s"))

    async def _write_entries(self) -> None:
        try:
            async with self._flushing:
                await self._sink.logged(self._taken())
        except LedgerUnavailable as error:
            # Entries are dropped while Redis cannot be reached.
            self._observe(Trouble(where="job_logs", error=str(error)))

    async def _write_rows(self) -> bool:
        # At shutdown, wait for the write in flight instead of cancelling it.
        async with self._writing:
            return await self._written()

    async def _written(self) -> bool:
        if self._forgotten:
            self._observe(Trouble(where="job_logs", error=f"{self._forgotten} rows were dropped: too many at once"))
            self._forgotten = 0
        while self._rows and self._ledger is not None:
            rows = dict(islice(self._rows.items(), ROWS_AT_ONCE))
            try:
                await self._ledger.write_job_logs(list(rows.values()))
            except LedgerUnavailable as error:
                self._observe(Trouble(where="job_logs", error=str(error)))
                return False
            except Exception as error:  # noqa: BLE001 - a row that the database refuses must not block the others
                self._observe(Trouble(where="job_logs", error=f"{type(error).__name__}: {error}"))
            for key, row in rows.items():
                # A row that changed meanwhile is newer than the written one.
                if self._rows.get(key) is row:
                    del self._rows[key]
        return True

    def _taken(self) -> list[str]:
        entries, self._entries = list(self._entries), deque(maxlen=MOST_ENTRIES)
        return entries

    def _moment(self) -> str:
        """The current time in milliseconds, formatted once for all entries of the same millisecond."""
        now = int(self._clock.wall() * 1000)
        if now != self._stamp[0]:
            self._stamp = (now, moment(now / 1000))
        return self._stamp[1]

    def _entry(self, queue: str, message: JobMessage, status: str, attempts: int, info: dict[str, Any]) -> str:
        entry = {
            "timestamp": self._moment(),
            "queue": queue,
            "action": message.action,
            "status": status,
            "message_id": message.id,
            "attempts": attempts,
            "info": info,
        }
        return _encode(entry).decode()

    def _row(
        self,
        queue: str,
        message: JobMessage,
        status: str,
        attempts: int,
        now: float,
        *,
        error: str | None = None,
        retry_at: float | None = None,
    ) -> None:
        key = (queue, _fit(message.id))
        held = self._rows.get(key)
        # The answer to a producer's enqueue may arrive after a worker here has begun or ended the message.
        if self._ledger is None or (held is not None and held.at > now):
            return
        if key not in self._rows and len(self._rows) >= MOST_ROWS:
            del self._rows[next(iter(self._rows))]
            self._forgotten += 1
        self._rows[key] = JobRow(
            self._service,
            queue,
            key[1],
            message.correlation_id and _fit(message.correlation_id),
            message.idempotency_key and _fit(message.idempotency_key),
            status,
            min(attempts, MOST_ATTEMPTS),
            _fit(error, LONGEST_ERROR) if error else None if held is None else held.last_error,
            retry_at,
            _fit(message.action),
            now if held is None else held.since,
            now,
        )


def _fit(text: str, longest: int = LONGEST_WORD) -> str:
    """A text that every store and an index of PostgreSQL accept."""
    return clean_text(text, longest)


def _error(each: Settlement) -> str:
    said = each.note.error if each.note is not None else None
    if said is None and isinstance(each.verdict, Bury):
        said = each.verdict.reason
    return (said or "unknown")[:LONGEST_ERROR]


def _runs(each: Settlement) -> int:
    """Failed runs so far; without a call, this run does not count."""
    return each.claim.attempt - (each.note is None)
