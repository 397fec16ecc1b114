"""The upkeep of list queues: due messages are pumped, orphans swept, old failures trimmed, depths looked at."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.events import Trouble
from carillon.domain.jobs import JobMessage, message_id, read_message, with_attempts
from carillon.domain.ports import Clock, Dice, Observer
from carillon.domain.queue_events import FailedTrimmed, MessageOverdue, MessageSwept, QueuePumped
from carillon.domain.queue_policy import Policy
from carillon.ledger.job_logs import JobLogs
from carillon.ledger.redis.lists_scripts import Scripts, hints_for, seconds

PUMP_WINDOW = 100
SWEEP_WINDOW = 500
MOST_SUSPECTS = 100_000
"""Messages remembered from one look to the next; what is beyond is seen when there is room again."""


class BeatRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which queues, and how long each thing may take."""

    policies: Mapping[str, Policy]
    actions: Mapping[str, str]
    grace_seconds: float = 5.0
    """Without a lock in two looks this far apart, a message is an orphan."""
    failed_over: int = 1000
    failed_keep: int = 100


class ListBeat:
    """One process's hands for the upkeep; many processes may do it at once."""

    def __init__(
        self, *, scripts: Scripts, logs: JobLogs, rules: BeatRules, clock: Clock, dice: Dice, observer: Observer
    ) -> None:
        self._scripts = scripts
        self._logs = logs
        self._rules = rules
        self._clock = clock
        self._dice = dice
        self._observe = observer
        self._seen: dict[tuple[str, bytes], float] = {}
        """When each message in a processing list was first met; since when without a lock, where it has none."""
        self._told: set[tuple[str, bytes]] = set()

    async def pump(self) -> int:
        """Move everything that is due; answers how much that was."""
        queues, moved = list(self._rules.policies), 0
        while queues:
            answers = await self._scripts.run("pump", {"queues": queues, "window": PUMP_WINDOW})
            more = []
            for queue, number, late in zip(queues, answers[::2], answers[1::2], strict=True):
                if number < 0:
                    self._observe(Trouble(where="pump", error=f"{queue}: its keys are of another kind"))
                elif number > 0:
                    self._observe(QueuePumped(queue=queue, moved=number, late_seconds=float(late)))
                    moved += number
                more += [queue] if number == PUMP_WINDOW else []
            queues = more
        return moved

    async def sweep(self) -> int:
        """Look at every processing list once; answers how many orphans were taken out."""
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
        """Trim failed lists that have grown too long, the oldest first; answers how many messages that cost."""
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
                # Once it was too long it is cut to its measure, however many windows that takes.
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
        """The orphans of a window: those that had no lock before, and still have none."""
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
        """A worker that died has spent an attempt."""
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
