"""List queues for producers, operators and upkeep: enqueue, look, requeue, pump, sweep and trim."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.jobs import BadMessage, JobMessage, age_seconds, message_id, read_message, with_attempts
from carillon.domain.ports import Clock, Dice, Observer
from carillon.domain.queue_events import FailedTrimmed, MessageOverdue, MessageSwept, QueuePumped
from carillon.domain.queues import Depth, FailedMessage, Policy
from carillon.ledger.jobs import JobLogs
from carillon.ledger.redis.scripts import Scripts, hints_for, seconds, unavailable

WINDOW = 500
_PATIENCE = 5.0


class Put(msgspec.Struct, frozen=True):
    """One message for one queue."""

    queue: str
    raw: bytes
    delay_seconds: float = 0.0
    """How long the message waits in the delayed set."""


class ListQueues:
    """Enqueues, lists and requeues messages of any queue, also in a process without a worker."""

    def __init__(self, redis: Redis, scripts: Scripts) -> None:
        self._redis = redis
        self._scripts = scripts

    async def enqueue(self, puts: Sequence[Put]) -> list[float | BadMessage]:
        """Enqueue messages; returns for each the time, or why it was refused."""
        given = {"items": [(put.queue, len(put.raw), put.delay_seconds) for put in puts]}
        time, errors = await self._scripts.run("enqueue", given, [put.raw for put in puts])
        now = seconds(time)
        return [
            BadMessage(f"{put.queue} takes no messages: {error.decode('utf-8', 'replace')}") if error else now
            for put, error in zip(puts, errors, strict=True)
        ]

    async def depths(self, queues: Sequence[str]) -> dict[str, Depth]:
        """The depths of these queues at one moment."""
        time, *found = await self._scripts.run("depths", {"queues": list(queues)})
        now = seconds(time)
        return {queue: _depth(found[5 * at : 5 * at + 5], now) for at, queue in enumerate(queues)}

    async def failed(self, queue: str, limit: int, after: tuple[int, str] | None = None) -> list[FailedMessage]:
        """Failed messages, newest first; `after` goes on behind the message with so many older ones and this id.

        Places are counted from the oldest: what fails meanwhile moves nothing. Where older ones were requeued, the
        message stands further on and is looked for there; if it was requeued itself, some may be shown again.
        """
        if limit <= 0:
            return []
        if after is None:
            return await self._page(queue, 0, limit)
        older, own_id = after
        at = -1 - older
        while at < 0:
            window = await self._page(queue, at, WINDOW)
            found = next((place for place, one in enumerate(window) if one.id == own_id), None)
            if found is not None:
                return await self._page(queue, -window[found].older, limit) if window[found].older else []
            at = -window[-1].older if window else 0
        return await self._page(queue, -older, limit) if older else []

    async def _page(self, queue: str, first: int, limit: int) -> list[FailedMessage]:
        """So many messages from this index on, which is negative if it counts from the oldest."""
        last = first + limit - 1
        if first < 0:
            last = min(last, -1)
        raws = await self._range(queue, first, last)
        # Counted after the messages were read: a place that is too new is found again, one that is too old is not.
        oldest = -1 - last if first < 0 else await self._length(queue) - first - len(raws)
        return [_failed(queue, raw, oldest + len(raws) - 1 - place) for place, raw in enumerate(raws)]

    async def requeue(self, queue: str, ids: Collection[str] | None = None, limit: int | None = None) -> int:
        """Move failed messages back with a fresh budget, the oldest first; returns how many."""
        moved, skipped = 0, 0
        while limit is None or moved < limit:
            window = await self._range(queue, -WINDOW - skipped, -1 - skipped)
            chosen = [raw for raw in reversed(window) if ids is None or message_id(raw) in ids]
            chosen = chosen if limit is None else chosen[: limit - moved]
            gone = await self._requeue(queue, chosen)
            moved += gone
            skipped += len(window) - gone
            if len(window) < WINDOW:
                break
        return moved

    async def _requeue(self, queue: str, chosen: Sequence[bytes]) -> int:
        texts: list[bytes] = []
        for raw in chosen:
            # An invalid message stays unchanged, and will fail again.
            texts += (raw, raw if read_message(raw, "", "") is None else with_attempts(raw, 0))
        items = [(queue, len(texts[at]), len(texts[at + 1])) for at in range(0, len(texts), 2)]
        if not items:
            return 0
        _, answers = await self._scripts.run("requeue", {"items": items}, texts)
        return sum(answers)

    async def _range(self, queue: str, first: int, last: int) -> list[bytes]:
        try:
            found = await self._redis.lrange(f"{queue}:failed", first, last)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error
        return [text.encode() if isinstance(text, str) else text for text in found]

    async def _length(self, queue: str) -> int:
        try:
            return int(await self._redis.llen(f"{queue}:failed"))
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(error) from error


def _depth(found: Sequence[Any], now: float) -> Depth:
    main, processing, delayed, failed, oldest = found
    message = read_message(oldest, "", "") if oldest else None
    age = None if message is None else age_seconds(message.created_at, now)
    return Depth(main, processing, delayed, failed, age)


def _failed(queue: str, raw: bytes, older: int) -> FailedMessage:
    own_id = message_id(raw)
    return FailedMessage(queue, own_id, read_message(raw, own_id, ""), raw, older)


PUMP_WINDOW = 100
SWEEP_WINDOW = 500
_PATIENCE = 5.0
MOST_SUSPECTS = 100_000
"""The most messages that the sweep remembers between two looks; it takes in others when there is room."""


class ListUpkeepRules(msgspec.Struct, frozen=True, kw_only=True):
    """The queues and limits of the upkeep."""

    policies: Mapping[str, Policy]
    actions: Mapping[str, str]
    grace_seconds: float = 5.0
    """A message that two looks this far apart find without a lock is an orphan."""
    failed_over: int = 1000
    failed_keep: int = 100


class ListUpkeep:
    """The upkeep of list queues; many processes may run it at once."""

    def __init__(
        self, *, scripts: Scripts, logs: JobLogs, rules: ListUpkeepRules, clock: Clock, dice: Dice, observer: Observer
    ) -> None:
        self._scripts = scripts
        self._logs = logs
        self._rules = rules
        self._clock = clock
        self._dice = dice
        self._observe = observer
        self._seen: dict[tuple[str, bytes], float] = {}
        """When each message in a processing list was first seen, and since when an unlocked one has no lock."""
        self._told: set[tuple[str, bytes]] = set()

    async def pump(self) -> int:
        """Move every due message to its queue; returns how many."""
        queues, moved = list(self._rules.policies), 0
        while queues:
            answers = await self._scripts.run("pump", {"queues": queues, "window": PUMP_WINDOW})
            more = []
            for queue, number, late in zip(queues, answers[::2], answers[1::2], strict=True):
                if number < 0:
                    self._observe(Trouble(where="pump", error=f"{queue}: its keys in Redis have the wrong type"))
                elif number > 0:
                    self._observe(QueuePumped(queue=queue, moved=number, late_seconds=float(late)))
                    moved += number
                more += [queue] if number == PUMP_WINDOW else []
            queues = more
        return moved

    async def sweep(self) -> int:
        """Look at every processing list once; returns how many orphans were removed."""
        swept = 0
        present: set[tuple[str, bytes]] = set()
        for queue in self._rules.policies:
            last = -1
            while True:
                window = await self._window(queue, last)
                orphans = self._suspects(queue, window, present)
                gone = await self._take_out(queue, orphans)
                swept += gone
                last -= len(window) - gone
                if len(window) < SWEEP_WINDOW:
                    break
        self._seen = {key: at for key, at in self._seen.items() if key in present}
        self._told &= present
        return swept

    async def cleanup(self) -> int:
        """Trim failed lists that are too long, the oldest first; returns how many messages were removed."""
        trimmed = 0
        for queue in self._rules.policies:
            over, gone = self._rules.failed_over, 0
            while True:
                given = {"queue": queue, "over": over, "keep": self._rules.failed_keep, "window": SWEEP_WINDOW}
                time, texts = await self._scripts.run("cleanup", given)
                for raw in texts:
                    message = self._read(queue, raw, message_id(raw))
                    if message is not None:
                        self._logs.gone(queue, message, seconds(time))
                gone += len(texts)
                if len(texts) < SWEEP_WINDOW:
                    break
                # A list that was too long is cut to its limit, in as many windows as needed.
                over = self._rules.failed_keep
            if gone:
                self._observe(FailedTrimmed(queue=queue, messages=gone))
            trimmed += gone
        return trimmed

    async def _window(self, queue: str, last: int) -> list[tuple[bytes, bytes, bytes]]:
        given: dict[str, Any] = {"queue": queue, "first": last - SWEEP_WINDOW + 1, "last": last, "hints": {}}
        found = await self._scripts.run("look", given)
        strange = [found[at + 1] for at in range(0, len(found), 3) if found[at] == b"strange"]
        if strange:
            found = await self._scripts.run("look", {**given, "hints": hints_for(strange)})
        return [(found[at], found[at + 1], found[at + 2]) for at in range(0, len(found), 3)]

    def _suspects(
        self, queue: str, window: Sequence[tuple[bytes, bytes, bytes]], present: set[tuple[str, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        """The orphans of a window: messages without a lock at an earlier look and now."""
        now, policy = self._clock.monotonic(), self._rules.policies[queue]
        orphans = []
        for what, text, own_id in window:
            key = (queue, b"%b:%b" % (what[:1], own_id))
            present.add(key)
            if key not in self._seen and len(self._seen) >= MOST_SUSPECTS:
                continue
            since = now - self._seen.setdefault(key, now)
            if what == b"orphan" and since >= self._rules.grace_seconds:
                orphans.append((text, own_id))
            elif what == b"locked" and since >= policy.visibility_timeout_seconds and key not in self._told:
                self._told.add(key)
                told = own_id.decode("utf-8", "replace")
                self._observe(MessageOverdue(queue=queue, message_id=told, seconds=since))
        return orphans

    async def _take_out(self, queue: str, orphans: Sequence[tuple[bytes, bytes]]) -> int:
        if not orphans:
            return 0
        items: list[tuple[Any, ...]] = []
        texts: list[bytes] = []
        messages: list[JobMessage] = []
        for raw, own_id in orphans:
            message = self._read(queue, raw, own_id.decode("utf-8", "replace"))
            verb, changed, delay = self._fate(queue, raw, message)
            known = message or JobMessage(own_id.decode("utf-8", "replace"), self._action(queue), 0, {})
            entry = self._logs.swept(queue, known, delay)
            items.append((queue, verb, len(raw), len(changed), len(own_id), delay or 0.0, entry))
            texts += (raw, changed, own_id)
            messages.append(known)
        given = {"items": items, "entries": await self._logs.pending(), **self._scripts.log}
        time, answers = await self._scripts.run("sweep", given, texts)
        for message, swept, score in zip(messages, answers[::2], answers[1::2], strict=True):
            if swept:
                until = float(score) if score else None
                self._logs.swept_row(queue, message, seconds(time), until)
                verdict = "bury" if until is None else "retry"
                self._observe(
                    MessageSwept(queue=queue, message_id=message.id, attempts=message.attempts + 1, verdict=verdict)
                )
        return sum(answers[::2])

    def _fate(self, queue: str, raw: bytes, message: JobMessage | None) -> tuple[str, bytes, float | None]:
        """The next step of an orphan; the dead worker's run counts as an attempt."""
        policy = self._rules.policies[queue]
        if message is None:
            return "fail", b"", None
        most = policy.max_retries if message.max_attempts is None else message.max_attempts
        attempts = message.attempts + 1
        if attempts > most:
            return "fail", b"", None
        return "retry", with_attempts(raw, attempts), policy.delay(attempts, self._dice())

    def _read(self, queue: str, raw: bytes, own_id: str) -> JobMessage | None:
        return read_message(raw, own_id, self._action(queue))

    def _action(self, queue: str) -> str:
        return self._rules.actions.get(queue, "job")


async def still_names(url: str, queue: str, about: Callable[[bytes], bool]) -> int:
    """How many messages that wait, are put off or run `about` names; raises LedgerUnavailable."""
    redis: Any = Redis.from_url(url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE)
    found: set[bytes] = set()
    try:
        # A message goes from waiting to running to delayed and back: only two retries during one look would escape it.
        for ask, key in (
            (redis.lrange, f"{queue}:processing"),
            (redis.zrange, f"{queue}:delayed"),
            (redis.lrange, queue),
            (redis.lrange, f"{queue}:processing"),
            (redis.zrange, f"{queue}:delayed"),
        ):
            at = 0
            while raws := await ask(key, at, at + WINDOW - 1):
                found.update(raw for raw in raws if about(raw))
                at += len(raws)
    except (RedisError, OSError, TimeoutError) as error:
        raise LedgerUnavailable(str(error)) from error
    finally:
        await redis.aclose()
    return len(found)


async def take_out_failed(url: str, queues: Sequence[str], about: Callable[[bytes], bool]) -> int:
    """Remove what `about` names from the failed lists; raises LedgerUnavailable.

    What waits or runs is left: it ends, or fails and is found by the next look.
    """
    removed = 0
    redis: Any = Redis.from_url(url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE)
    scripts = Scripts(redis)
    try:
        for queue in queues:
            at = 0
            while raws := await redis.lrange(f"{queue}:failed", at, at + WINDOW - 1):
                named = [raw for raw in raws if about(raw)]
                given = {"queue": queue, "lengths": [len(raw) for raw in named]}
                gone = await scripts.run("forget", given, named) if named else 0
                at, removed = at + len(raws) - gone, removed + gone
    except (RedisError, OSError, TimeoutError) as error:
        raise LedgerUnavailable(str(error)) from error
    finally:
        await redis.aclose()
    return removed
