"""The backlog in a RabbitMQ queue: a claim is an unacknowledged delivery; waits and counts are in memory."""

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import assert_never

import msgspec

from carillon.domain.admin import AuditLedger, AuditRow
from carillon.domain.claims import Claim, Settled, Settlement, Want
from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import LeaseLost
from carillon.domain.intents import Intent, Malformed
from carillon.domain.ports import Clock, Dice, Observer
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Skip
from carillon.faultpoint import faultpoint
from carillon.ledger.local_signal import LocalSignal
from carillon.ledger.rabbitmq.connection import BrokerConnection, BrokerRules, Delivery
from carillon.ledger.rabbitmq.deliveries import (
    LEAVE_SECONDS,
    ClaimedDelivery,
    ClaimRules,
    DeliveryEnds,
    claim_of,
    failed_row,
    finished,
    sent_row,
    skipped_row,
)
from carillon.ledger.rabbitmq.marks import MarkAnswer, Marks, MarkStep, Verb


class QueueRules(msgspec.Struct, frozen=True, kw_only=True):
    """A blueprint's rules for its queue."""

    broker: BrokerRules
    claims: ClaimRules
    pause_seconds: float = 1.0
    """The pause before a delivery goes back to the queue."""
    lease_seconds: float = 30.0
    """A claim that its worker has not renewed for so long goes back to the queue."""


class RabbitBacklog:
    """Satisfies Backlog: a message is claimed by its mark, and settled by mark, audit row and acknowledgement."""

    def __init__(
        self,
        *,
        rules: QueueRules,
        decode: Callable[[bytes], Intent | Malformed],
        reason: Callable[[Settlement], str],
        marks: Marks,
        audit: AuditLedger,
        clock: Clock,
        observer: Observer,
        dice: Dice,
    ) -> None:
        """`reason` gives the text of a dead letter."""
        self._rules = rules
        self._decode = decode
        self._reason = reason
        self._marks = marks
        self._audit = audit
        self._clock = clock
        self._observe = observer
        self.signal = LocalSignal()
        self.connection = BrokerConnection(
            rules.broker, arrived=self._arrive, lost=self._lose, observer=observer, dice=dice
        )
        self._ends = DeliveryEnds(
            connection=self.connection,
            marks=marks,
            audit=audit,
            clock=clock,
            observer=observer,
            pause_seconds=rules.pause_seconds,
        )
        self._tokens = itertools.count(1)
        self._arrived: deque[Delivery] = deque()
        self._held: dict[int, ClaimedDelivery] = {}
        self._waiting: list[tuple[float, int, ClaimedDelivery]] = []
        """Claimed deliveries that wait for their next attempt."""
        self._stopping = False

    async def claim(self, wants: Sequence[Want], total: int, owner: str) -> list[Claim]:  # noqa: ARG002 - marks name us
        rules, room = self._rules.claims, Counter[str]()
        for want in wants:
            room[want.provider] += want.limit if want.lane == rules.lane and not self._stopping else 0
        again = self._due(room, total)
        fresh = self._read(min(room[rules.provider], total - len(again)))
        steps = [MarkStep("renew", held.key, held.mark) for held in again]
        steps += [MarkStep("take", held.key, held.mark) for held in fresh]
        try:
            said = await self._marks.run(steps)
            if steps:
                faultpoint("after_mark")
        except Exception as error:
            # Without a mark, the worker sends nothing.
            for held in again:
                self._wait(held, self._rules.pause_seconds)
            for held in fresh:
                self._give_back(held, marked=not isinstance(error, LedgerUnavailable))
            raise
        claims = [self._next(held) for held, answer in zip(again, said, strict=False) if self._still(held, answer)]
        answers = said[len(again) :]
        return claims + [held.claim for held, answer in zip(fresh, answers, strict=True) if self._sort(held, answer)]

    async def extend(self, claims: Sequence[Claim]) -> list[Claim]:
        self._expire(claims)
        known = [claim for claim in claims if claim.token in self._held]
        steps = [MarkStep("renew", self._held[claim.token].key, self._held[claim.token].mark) for claim in known]
        said = await self._marks.run(steps)
        kept = {claim.token for claim, answer in zip(known, said, strict=True) if answer.word == "done"}
        return [claim for claim in claims if claim.token not in kept]

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        known = [(each, self._held[each.claim.token]) for each in settlements if each.claim.token in self._held]
        verbs = [_verb(each, held) for each, held in known]
        steps = [MarkStep(verb, held.key, held.mark) for verb, (_, held) in zip(verbs, known, strict=True) if verb]
        said = iter(await self._marks.run(steps))
        faultpoint("after_settled_mark")
        ours = [verb is None or next(said).word == "done" for verb in verbs]
        settled = [(each, held, mine) for (each, held), mine in zip(known, ours, strict=True)]
        await self._audit.write_audit(
            [row for each, held, mine in settled for row in self._rows(each, held, mine=mine)]
        )
        faultpoint("after_audit")
        answers = {each.claim.token: self._conclude(each, held, mine=mine) for each, held, mine in settled}
        return [answers.get(each.claim.token, Settled.STALE) for each in settlements]

    async def stop(self) -> None:
        """Claim no more: messages without an attempt go back to the queue at once."""
        self._stopping = True
        await self.connection.stop_consuming()
        while self._arrived:
            self._ends.give_back(self._arrived.popleft(), 0.0)

    async def aclose(self, seconds: float = LEAVE_SECONDS) -> None:
        """Return waiting messages, finish dead letters in flight, close; each step gets `seconds`."""
        waiting, self._waiting = [held for _, _, held in self._waiting], []
        # If Redis does not answer, the mark stays, and another worker takes it over after its age limit.
        with suppress(LedgerUnavailable, TimeoutError):
            async with asyncio.timeout(seconds):
                await self._marks.run([MarkStep("release", held.key, held.mark) for held in waiting])
        for held in waiting:
            self._ends.give_back(held.message, 0.0)
        await self._ends.aclose(seconds)
        await self.connection.aclose()

    def _arrive(self, message: Delivery) -> None:
        if self._stopping:
            self._ends.give_back(message, 0.0)
            return
        self._arrived.append(message)
        self.signal.ring()

    def _lose(self) -> None:
        """The connection broke: the broker delivers every claimed message again."""
        self._arrived.clear()
        for held in self._held.values():
            held.lost = True
        waiting, self._waiting = self._waiting, []
        for _, _, held in waiting:
            self._drop(held)
            self._ends.release(held)

    def _due(self, room: Counter[str], total: int) -> list[ClaimedDelivery]:
        """What waited long enough and whose provider has room, which is less by so many then."""
        now = self._clock.monotonic()
        found: list[ClaimedDelivery] = []
        full: list[tuple[float, int, ClaimedDelivery]] = []
        while len(found) < total and self._waiting and self._waiting[0][0] <= now:
            due = heapq.heappop(self._waiting)
            provider = due[2].claim.provider
            if room[provider] <= 0:
                full.append(due)
                continue
            room[provider] -= 1
            found.append(due[2])
            found[-1].renewed_at = now
        for due in full:
            heapq.heappush(self._waiting, due)
        return found

    def _wait(self, held: ClaimedDelivery, seconds: float) -> None:
        heapq.heappush(self._waiting, (self._clock.monotonic() + seconds, held.claim.token, held))
        asyncio.get_running_loop().call_later(seconds, self.signal.ring)

    def _read(self, limit: int) -> list[ClaimedDelivery]:
        """Up to `limit` readable messages whose key this process has not claimed already."""
        found: list[ClaimedDelivery] = []
        keys = {held.key for held in self._held.values()}
        while len(found) < limit and self._arrived:
            message = self._arrived.popleft()
            read = self._decode(message.body)
            if isinstance(read, Malformed):
                self._ends.refuse(message, read)
            elif read.idempotency_key in keys:
                self._ends.give_back(message)
            else:
                keys.add(read.idempotency_key or "")
                found.append(self._hold(message, read))
        return found

    def _hold(self, message: Delivery, intent: Intent) -> ClaimedDelivery:
        token = next(self._tokens)
        wall = self._clock.wall()
        claim = claim_of(intent, token, self._rules.claims, round(wall * 1000))
        mark, now = self._marks.claim_name(token), self._clock.monotonic()
        expires_at = None if claim.expires_in is None else wall + claim.expires_in
        self._held[token] = ClaimedDelivery(
            message=message,
            intent=intent,
            claim=claim,
            mark=mark,
            taken_at=now,
            renewed_at=now,
            expires_at=expires_at,
        )
        return self._held[token]

    def _drop(self, held: ClaimedDelivery) -> None:
        self._held.pop(held.claim.token, None)

    def _give_back(self, held: ClaimedDelivery, *, marked: bool) -> None:
        """Return a claimed message to the queue; with its mark, no other process would take it for minutes."""
        self._drop(held)
        if marked:
            self._ends.release(held)
        self._ends.give_back(held.message)

    def _expire(self, claims: Sequence[Claim]) -> None:
        """The leases of a queue: a claim that the worker forgot, after an error for example, goes back to the queue.

        The broker gives a message to nobody else while this connection lives. `claims` is everything that the worker
        holds, so a process that was stopped for longer than a lease loses nothing that it still works on.
        """
        now = self._clock.monotonic()
        for claim in claims:
            if claim.token in self._held:
                self._held[claim.token].renewed_at = now
        waiting = {held.claim.token for _, _, held in self._waiting}
        old = now - self._rules.lease_seconds
        for held in [one for token, one in self._held.items() if token not in waiting and one.renewed_at <= old]:
            claim = held.claim
            self._observe(
                LeaseLost(notification_id=claim.notification_id, route_id=claim.route_id, provider=claim.provider)
            )
            self._give_back(held, marked=True)

    def _sort(self, held: ClaimedDelivery, said: MarkAnswer) -> bool:
        """Whether this process may send a new message."""
        if said.word == "go":
            return True
        self._drop(held)
        if said.word == "sent":
            self._ends.skip(held, said.holder)
        else:
            self._ends.give_back(held.message)
        return False

    def _still(self, held: ClaimedDelivery, said: MarkAnswer) -> bool:
        """Whether this process still holds a message that waited; if Redis lost the mark, the broker redelivers it."""
        if said.word == "done":
            return True
        self._drop(held)
        self._ends.give_back(held.message)
        return False

    def _next(self, held: ClaimedDelivery) -> Claim:
        """The claim for the next attempt of a message that waited; it keeps the rendered content."""
        self._drop(held)
        age = self._clock.monotonic() - held.taken_at
        expires_in = None if held.expires_at is None else held.expires_at - self._clock.wall()
        held.claim = msgspec.structs.replace(
            held.claim,
            token=next(self._tokens),
            attempt=held.claim.attempt + 1,
            age_seconds=age,
            expires_in=expires_in,
        )
        self._held[held.claim.token] = held
        return held.claim

    def _rows(self, each: Settlement, held: ClaimedDelivery, *, mine: bool) -> list[AuditRow]:
        match each.verdict:
            case Finish():
                return [sent_row(held.intent, held.mark)]
            case Bury() if mine and not held.lost:
                return [failed_row(held.intent, held.mark, self._cause(each, held))]
            case Skip(gate) if mine and not held.lost:
                return [skipped_row(held.intent, held.mark, gate)]
            case _:
                return []

    def _cause(self, each: Settlement, held: ClaimedDelivery) -> str:
        """The reason of a dead letter; the failure before comes first where a breaker refused the last call."""
        said = self._reason(each)
        return f"{held.failed}; {said}" if each.note is None and held.failed else said

    def _conclude(self, each: Settlement, held: ClaimedDelivery, *, mine: bool) -> Settled:
        """The last step after mark and audit row; a lost delivery cannot be acknowledged, and is redelivered."""
        verdict = each.verdict
        if not isinstance(verdict, Retry | FailOver) or held.lost or not mine:
            self._drop(held)
        if isinstance(verdict, Finish):
            self._observe(finished(held, "sent", held.claim.attempt, self._clock.monotonic()))
            self._ends.ack(held)
            return Settled.ADOPTED if held.lost else Settled.APPLIED
        if held.lost or not mine:
            self._ends.give_back(held.message)
            return Settled.STALE
        match verdict:
            case Retry(delay):
                held.failed = self._reason(each)
                self._wait(held, delay)
            case FailOver(provider, delay):
                held.failed = self._reason(each)
                before = held.claim.attempt
                held.claim = msgspec.structs.replace(held.claim, provider=provider, attempts_before=before)
                self._wait(held, delay)
            case Defer(delay):
                pause = 0.0 if self._stopping else max(delay, self._rules.pause_seconds)
                self._ends.give_back(held.message, pause)
            case Bury():
                calls = held.claim.attempt - (each.note is None)
                self._observe(finished(held, "failed", calls, self._clock.monotonic()))
                self._ends.give_up(held, self._cause(each, held))
            case Skip():
                self._observe(finished(held, "skipped", held.claim.attempt - 1, self._clock.monotonic()))
                self._ends.ack(held)
            case _:
                assert_never(verdict)
        return Settled.APPLIED


def _verb(each: Settlement, held: ClaimedDelivery) -> Verb | None:
    """The step for the mark. A lost delivery is redelivered, so its mark must not say failed without a dead letter."""
    match each.verdict:
        case Finish():
            return "sent"
        case Bury():
            return "release" if held.lost else "failed"
        case Retry() | FailOver():
            return "release" if held.lost else None
        case Defer() | Skip():
            return "release"
        case _:
            assert_never(each.verdict)
