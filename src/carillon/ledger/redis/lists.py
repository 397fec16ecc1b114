"""The backlog in Redis lists, for `billing` and queues of your own; every move is one script, checked by token."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, assert_never

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from carillon.domain.claims import Claim, Settled, Settlement, Want
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import Trouble
from carillon.domain.jobs import JobMessage, read_message, with_attempts
from carillon.domain.ports import Observer
from carillon.domain.queues import Policy
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Skip
from carillon.ending import ended
from carillon.ledger.jobs import JobLogs
from carillon.ledger.redis.scripts import Scripts, hints_for, seconds

BLOCK_SECONDS = 1.0
"""How long one call blocks; the look calls again at once, so this only bounds the wait for a connection that died."""
AGAIN_SECONDS = 0.5


class ListSignal:
    """Satisfies Signal: one look for each queue listens until a message is there.

    Race: a message comes while no call is blocked.
      a look calls again by itself    a call that ends without a message is followed by the next one, and a call finds
                                      a message that is there already; no worker has to start it.
      a look ends with its message    it says so once; the next `wait`, after the worker's claim, starts another.
      a paused queue                  its look sleeps until the pause is over, and then finds what came meanwhile.
      only queues with room           a queue whose handlers are all busy has a message all the time: its look would
                                      wake the worker without end. The end of a run rings instead.
    """

    def __init__(self, redis: Redis, queues: Iterable[str], idle: Callable[[str], None] = lambda _: None) -> None:
        """`redis` needs a blocking connection for each queue; `idle` is called with a queue that had no message."""
        self._redis = redis
        self._idle = idle
        self._queues = tuple(queues)
        self._rung = asyncio.Event()
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._paused: dict[str, float] = {}
        self._wanted: set[str] | None = None
        """The queues that claims asked for since the last wait, empty if all are full; None before any claim: all."""
        self._full: frozenset[str] = frozenset()
        """The queues that had no room at the last wait."""

    def ring(self) -> None:
        self._rung.set()

    def want(self, queues: Iterable[str]) -> None:
        """A claim asks for these queues: they have room, and the next wait listens to them."""
        self._wanted = (self._wanted or set()).union(queues)

    def freed(self, queues: Iterable[str]) -> None:
        """Runs of these queues have ended: a queue without room may have room now."""
        if not self._full.isdisjoint(queues):
            self._rung.set()

    def pause(self, queue: str, seconds: float) -> None:
        """Ignore the queue for a while: its messages cannot be claimed now."""
        self._paused[queue] = _now() + seconds

    def paused(self, queue: str) -> bool:
        """Whether the queue is still ignored."""
        return self._pause_left(queue) > 0.0

    async def wait(self, timeout_seconds: float) -> None:
        wanted = frozenset(self._queues if self._wanted is None else self._wanted)
        self._wanted, self._full = None if self._wanted is None else set(), frozenset(self._queues) - wanted
        for queue in self._queues:
            if queue in wanted and queue not in self._looks:
                self._looks[queue] = asyncio.create_task(self._look(queue))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._rung.wait()
        self._rung.clear()

    async def aclose(self) -> None:
        """End the blocking calls."""
        await ended(*self._looks.values())

    async def _look(self, queue: str) -> None:
        """Listen until the queue has a message that may be claimed; the message stays where it is."""
        try:
            while not await self._has_message(queue):
                pass
            self._rung.set()
        finally:
            del self._looks[queue]

    async def _has_message(self, queue: str) -> bool:
        if (seconds := self._pause_left(queue)) > 0.0:
            await asyncio.sleep(seconds)
        try:
            # Onto itself: no command of Redis waits for a message and leaves it alone.
            found = await self._redis.blmove(queue, queue, BLOCK_SECONDS, "RIGHT", "RIGHT")  # type: ignore[arg-type]
        except (RedisError, OSError, TimeoutError):
            # The next claim reports the error; pause to avoid busy polling.
            await asyncio.sleep(AGAIN_SECONDS)
            return False
        if found is None:
            self._idle(queue)
        return found is not None

    def _pause_left(self, queue: str) -> float:
        left = self._paused.get(queue, 0.0) - _now()
        if left <= 0.0:
            self._paused.pop(queue, None)
        return left


CLAIM_BYTES = 4 * 1024 * 1024
"""The most bytes of one claim; a single larger message is still claimed, alone."""
HINT_ROUNDS = 3
NOTHING = JobMessage("", "", 0, {})
"""Stands for a text that is not a JSON object."""
_SETTLED = {0: Settled.STALE, 1: Settled.APPLIED, 2: Settled.ADOPTED}
_encode = msgspec.json.Encoder().encode


class ListPlace(msgspec.Struct, frozen=True, gc=False):
    """A claimed message: its exact bytes in the processing list, and its lock."""

    queue: str
    raw: bytes
    id: bytes
    token: str
    message: JobMessage


class ListRules(msgspec.Struct, frozen=True, kw_only=True):
    """The queues of this process and their policies."""

    policies: Mapping[str, Policy]
    """The queues that this process works on, each with its policy."""
    actions: Mapping[str, str]
    """The action of each queue for messages without one."""
    lane: int = 1
    service: str = "carillon"
    busy_pause_seconds: float = 1.0
    """How long to pause a queue whose waiting messages are all locked."""


class RedisLists:
    """Satisfies Backlog: this process holds a message while the message's lock has its token."""

    def __init__(
        self,
        *,
        scripts: Scripts,
        signal: ListSignal,
        logs: JobLogs,
        rules: ListRules,
        owner: str,
        observer: Observer,
    ) -> None:
        """`owner` is the unique name of this process."""
        self._scripts = scripts
        self._logs = logs
        self._rules = rules
        self._owner = f"{owner}:"
        self._observe = observer
        self._number = 1
        self._turn = 0
        self._patience: asyncio.Timeout | None = None
        """Of the claim under way."""
        self._renewed: dict[int, float] = {}
        """When each lock was last renewed, by this process's clock."""
        self.signal = signal
        self.lost: Callable[[Claim], None] = lambda _: None
        """Called with every claim whose lock is lost, or may be lost because Redis did not answer for too long."""

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:  # noqa: ARG002 - locks name us
        limits = self._limits(wants, total)
        if not limits:
            return []
        claims: list[Claim] = []
        try:
            async with asyncio.timeout(None) as self._patience:
                await self._gather(claims, limits, total)
        except TimeoutError:
            # What Redis gave in a silent round is in its processing list; the sweeper returns it.
            if not claims:
                raise LedgerUnavailable("the process ends, and Redis does not answer a claim") from None
        except LedgerUnavailable:
            # An earlier round's claims are run; the next claim reports the absent Redis.
            if not claims:
                raise
        finally:
            self._patience = None
        return claims

    def hurry(self, within_seconds: float) -> None:
        """At the end of the process: a claim under way waits at most `within_seconds` for a silent Redis."""
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time() + within_seconds)

    async def _gather(self, claims: list[Claim], limits: Mapping[str, int], total: int) -> None:
        hints: dict[str, str] = {}
        for _ in range(HINT_ROUNDS):
            found, strange = await self._ask(limits, total - len(claims), hints)
            claims += found
            if not strange or len(claims) >= total:
                break
            hints |= hints_for(strange)

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        if not claims:
            return []
        places: list[ListPlace] = [claim.place for claim in claims]
        items = [(place.queue, len(place.id), place.token, self._lock_ms(place.queue)) for place in places]
        asked_at = _now()
        try:
            places_lost = await self._scripts.run("extend", {"items": items}, [place.id for place in places])
        except LedgerUnavailable:
            for claim in claims:
                if _now() - self._renewed.get(claim.token, asked_at) > self._lock_ms(claim.provider) / 1000:
                    self.lost(claim)
            raise
        lost = [claims[at - 1] for at in places_lost]
        self._renewed |= {claim.token: asked_at for claim in claims if claim.token in self._renewed}
        for claim in lost:
            self._renewed.pop(claim.token, None)
            self.lost(claim)
        return lost

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        if not settlements:
            return []
        # The runs are over already: the next claim need not wait for this settlement.
        self.signal.freed(each.claim.provider for each in settlements)
        items: list[tuple[Any, ...]] = []
        texts: list[bytes] = []
        for each in settlements:
            place: ListPlace = each.claim.place
            verb, changed, delay = _move(each, place)
            entry = self._logs.entry_of(each, delay)
            items.append((place.queue, verb, len(place.raw), len(changed), len(place.id), place.token, delay, entry))
            texts += (place.raw, changed, place.id)
        given = {"items": items, "entries": await self._logs.pending(), **self._scripts.log}
        time, answers = await self._scripts.run("settle", given, texts)
        now = seconds(time)
        settled = [_SETTLED[answer] for answer in answers[::2]]
        for each, result, score in zip(settlements, settled, answers[1::2], strict=True):
            self._renewed.pop(each.claim.token, None)
            if result is not Settled.STALE:
                self._logs.settled(each, now, float(score) if score else None)
        return settled

    def _limits(self, wants: Sequence[Want], total: int) -> dict[str, int]:
        limits: dict[str, int] = {}
        known = [want for want in wants if want.lane == self._rules.lane and want.provider in self._rules.policies]
        self.signal.want(want.provider for want in known if want.limit > 0)
        for want in known:
            if want.limit > 0 and total > 0 and not self.signal.paused(want.provider):
                limits[want.provider] = min(total, limits.get(want.provider, 0) + want.limit)
        # Begin with another queue each time, so that the remainder of the shares does not always go to the same one.
        names = list(limits)
        at = self._turn % max(1, len(names))
        self._turn += 1
        return {name: limits[name] for name in names[at:] + names[:at]}

    async def _ask(
        self, limits: Mapping[str, int], total: int, hints: Mapping[str, str]
    ) -> tuple[list[Claim], list[bytes]]:
        names = list(limits)
        given = {
            "queues": [(name, limits[name], self._lock_ms(name)) for name in names],
            "total": total,
            "owner": self._owner,
            "number": self._number,
            "hints": hints,
            "bytes": CLAIM_BYTES,
        }
        # Numbers are used up before the answer, so that those of a lost answer are never used twice.
        self._number += total
        asked_at = _now()
        time, found, busy, strange, errors = await self._scripts.run("claim", given)
        now = seconds(time)
        claims, invalid = list[Claim](), list[ListPlace]()
        early: list[tuple[Claim, float]] = []
        for at in range(0, len(found), 4):
            number = found[at + 3]
            place = self._place(names[found[at] - 1], found[at + 1], found[at + 2], number)
            if place.message is NOTHING:
                invalid.append(place)
            elif (due := place.message.scheduled_for) is not None and due > now:
                early.append((self._claim_of(place, number, now), due - now))
            else:
                claims.append(self._claim_of(place, number, now))
                self._logs.started(place.queue, place.message, now)
        self._renewed |= {claim.token: asked_at for claim in claims}
        self._rest(names, found, busy, now)
        for at, error in zip(errors[::2], errors[1::2], strict=True):
            said = error.decode("utf-8", "replace")
            self._observe(Trouble(where="claim", error=f"{names[at - 1]}: {said}"))
            self.signal.pause(names[at - 1], self._rules.busy_pause_seconds)
        await self._put_aside(invalid, early)
        return claims, strange[1::2]

    async def _put_aside(self, invalid: Sequence[ListPlace], early: Sequence[tuple[Claim, float]]) -> None:
        """What is not run: invalid messages fail; what is early waits with the retries until its time.

        While Redis is away both stay in the processing list, where the sweeper finds them, and the claims are run.
        """
        try:
            if invalid:
                await self._refuse(invalid)
            await self.settle([Settlement(claim=claim, verdict=Defer(seconds)) for claim, seconds in early])
        except LedgerUnavailable as error:
            self._observe(Trouble(where="claim", error=str(error)))

    def _place(self, queue: str, raw: bytes, own_id: bytes, number: int) -> ListPlace:
        message = read_message(raw, own_id.decode("utf-8", "replace"), self._rules.actions.get(queue, "job"))
        return ListPlace(queue, raw, own_id, f"{self._owner}{number}", message or NOTHING)

    def _claim_of(self, place: ListPlace, number: int, now: float) -> Claim:
        message, queue = place.message, place.queue
        most = self._rules.policies[queue].max_retries if message.max_attempts is None else message.max_attempts
        tenant = message.payload.get("tenant_id")
        return Claim(
            notification_id=message.id,
            route_id=queue,
            token=number,
            channel=queue,
            recipient_ref=message.correlation_id or "",
            lane=self._rules.lane,
            provider=queue,
            policy=queue,
            attempt=message.attempts + 1,
            attempts_before=0,
            max_attempts=most + 1,
            age_seconds=0.0,
            notification_type=message.action,
            producer=self._rules.service,
            payload_json=_encode(message.payload).decode(),
            accepted_at_ms=int(now * 1000),
            address=queue,
            trace_id=message.correlation_id or message.id,
            audience_kind="queue",
            intent_key=message.idempotency_key,
            place=place,
            expires_in=None if message.expires_at is None else message.expires_at - now,
            # An operator may have paused the tenant.
            tenant_id=tenant if isinstance(tenant, str) and tenant else None,
        )

    def _rest(self, names: Sequence[str], found: Sequence[Any], busy: Sequence[Any], now: float) -> None:
        """Log locked messages, and pause fully locked queues to avoid busy polling."""
        worked = set(found[::4])
        for at in range(0, len(busy), 3):
            queue = names[busy[at] - 1]
            text_id = busy[at + 2].decode("utf-8", "replace")
            message = read_message(busy[at + 1], text_id, self._rules.actions.get(queue, "job"))
            if message is not None:
                self._logs.busy(queue, message, now)
            if busy[at] not in worked:
                self.signal.pause(queue, self._rules.busy_pause_seconds)

    async def _refuse(self, invalid: Sequence[ListPlace]) -> None:
        """Move invalid messages to the failed list, unchanged."""
        items, texts = [], []
        for place in invalid:
            own_id = place.id.decode("utf-8", "replace")
            entry = self._logs.invalid(
                place.queue, JobMessage(own_id, self._rules.actions.get(place.queue, "job"), 0, {})
            )
            items.append((place.queue, "fail", len(place.raw), 0, len(place.id), place.token, 0.0, entry))
            texts += [place.raw, place.id]
        given = {"items": items, "entries": await self._logs.pending(), **self._scripts.log}
        await self._scripts.run("settle", given, texts)

    def _lock_ms(self, queue: str) -> int:
        return max(1, round(self._rules.policies[queue].lock_ttl_seconds * 1000))


def _now() -> float:
    return asyncio.get_running_loop().time()


def _move(each: Settlement, place: ListPlace) -> tuple[str, bytes, float]:
    """The step of a verdict, the changed bytes, and the delay."""
    match each.verdict:
        case Finish() | Skip():
            return "ack", b"", 0.0
        case Retry(delay) | FailOver(_, delay):
            return "retry", with_attempts(place.raw, each.claim.attempt), delay
        case Defer(delay):
            # Deferred unchanged: no attempt was made.
            return ("retry", place.raw, delay) if delay > 0.0 else ("release", b"", 0.0)
        case Bury():
            return "fail", b"", 0.0
        case _:
            assert_never(each.verdict)
