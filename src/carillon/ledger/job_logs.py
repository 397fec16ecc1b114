"""What happened to each message: entries in a Redis list, one row in SQL; told as well as can be, never relied upon."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, Protocol

import msgspec

from carillon.domain.claims import Settlement
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.job_rows import JobLedger, JobRow
from carillon.domain.jobs import JobMessage, moment
from carillon.domain.ports import Clock, Observer
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry

MOST_ROWS = 20_000
MOST_ENTRIES = 10_000
ROWS_AT_ONCE = 500
EVERY_SECONDS = 0.1
LONGEST_WAIT = 5.0
LONGEST_ERROR = 2000
LONGEST_WORD = 500
MOST_ATTEMPTS = 2**31 - 1
_encode = msgspec.json.Encoder().encode


class EntrySink(Protocol):
    """Where entries go that no other step takes along."""

    async def logged(self, entries: Sequence[str]) -> None:
        """Raises LedgerUnavailable."""
        ...


class JobLogs:
    """Collects entries and rows and writes them off the way of the messages; bounded, the oldest are forgotten."""

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

    def received(self, queue: str, message: JobMessage, now: float) -> None:
        self._row(queue, message, "received", 0, now)

    def gone(self, queue: str, message: JobMessage, now: float) -> None:
        """It was trimmed from the failed ones: nobody can requeue it any more."""
        self._row(queue, message, "dead", message.attempts, now)

    def invalid(self, queue: str, message: JobMessage) -> str:
        """The entry of what is no message."""
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
        """The entry that a settlement becomes once it is applied; empty for those that say nothing."""
        place = each.claim.place
        match each.verdict:
            case Finish():
                return self._entry(place.queue, place.message, "success", place.message.attempts, {})
            case Retry() | FailOver():
                info = {"error": _error(each), "delay": round(delay, 3)}
                return self._entry(place.queue, place.message, "retry", each.claim.attempt, info)
            case Bury():
                return self._entry(place.queue, place.message, "failed", _runs(each), {"error": _error(each)})
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
            case Defer():
                self._row(
                    queue, message, "received" if score is None else "retry", message.attempts, now, retry_at=score
                )

    async def pending(self) -> list[str]:
        """Entries for the step that is about to be made, to stand before its own."""
        # Those on their way alone must arrive before: a start is not to be told after its end.
        async with self._flushing:
            return self._taken()

    async def run(self) -> None:
        """Write what collects, again and again, for as long as the process lives."""
        wait = EVERY_SECONDS
        while True:
            await self._clock.sleep(wait)
            wait = EVERY_SECONDS if await self.flush() else min(wait * 2, LONGEST_WAIT)

    async def flush(self) -> bool:
        """Write everything collected so far; False when something could not be written and is kept."""
        await self._write_entries()
        return await self._write_rows()

    async def leave(self, seconds: float) -> None:
        """Write the last of it, behind what is on its way; a silent Redis keeps no row, and neither keeps us longer."""
        writing = [asyncio.create_task(self._write_entries()), asyncio.create_task(self._write_rows())]
        _, silent = await asyncio.wait(writing, timeout=seconds)
        for task in silent:
            # Not waited for either: a statement under way may be given up only when its connection is.
            task.cancel()
        if silent:
            self._observe(Trouble(where="job_logs", error=f"not all was written within {seconds:.1f} s"))

    async def _write_entries(self) -> None:
        try:
            async with self._flushing:
                await self._sink.logged(self._taken())
        except LedgerUnavailable as error:
            # Nobody waits for entries in a Redis that is away.
            self._observe(Trouble(where="job_logs", error=str(error)))

    async def _write_rows(self) -> bool:
        # Whoever leaves waits for what is on its way, instead of cutting it off.
        async with self._writing:
            return await self._written()

    async def _written(self) -> bool:
        if self._forgotten:
            self._observe(Trouble(where="job_logs", error=f"{self._forgotten} rows were forgotten: too many at once"))
            self._forgotten = 0
        while self._rows and self._ledger is not None:
            rows = dict(islice(self._rows.items(), ROWS_AT_ONCE))
            try:
                await self._ledger.write_job_logs(list(rows.values()))
            except LedgerUnavailable as error:
                self._observe(Trouble(where="job_logs", error=str(error)))
                return False
            except Exception as error:  # noqa: BLE001 - what no database takes must not keep others from being written
                self._observe(Trouble(where="job_logs", error=f"{type(error).__name__}: {error}"))
            for key, row in rows.items():
                # What happened meanwhile is newer than what was written.
                if self._rows.get(key) is row:
                    del self._rows[key]
        return True

    def _taken(self) -> list[str]:
        entries, self._entries = list(self._entries), deque(maxlen=MOST_ENTRIES)
        return entries

    def _moment(self) -> str:
        """Milliseconds are enough, and many entries share one."""
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
        # A producer may hear of its message's arrival after a worker here has begun or ended it.
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
    """As an index of PostgreSQL takes it: it knows no NUL, and an end."""
    return text.replace("\x00", "\ufffd")[:longest] if len(text) > longest or "\x00" in text else text


def _error(each: Settlement) -> str:
    said = each.note.error if each.note is not None else None
    if said is None and isinstance(each.verdict, Bury):
        said = each.verdict.reason
    return (said or "unknown")[:LONGEST_ERROR]


def _runs(each: Settlement) -> int:
    """Failed runs so far; where no call was made, this one was none."""
    return each.claim.attempt - (each.note is None)
