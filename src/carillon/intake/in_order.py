"""Acceptance in order: arrivals are enriched, planned and stored together, and none is skipped."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import assert_never

from carillon.domain.errors import BadIntent, DirectoryUnavailable, LedgerUnavailable
from carillon.domain.events import IntentAccepted, IntentMalformed, IntentRepeated
from carillon.domain.intents import Arrival, Intent, Malformed, Progress
from carillon.domain.notifications import Accepted, Conflict, Duplicate, Enrolled, Enrolment
from carillon.domain.people import Found
from carillon.domain.ports import Clock, Directory, Ids, IntakeLedger, Observer, Signal, Templates
from carillon.faultpoint import faultpoint
from carillon.intake.accept import Contents, named
from carillon.intake.digests import gathered, rendered_as, throttled
from carillon.intake.erased import ErasedAddresses
from carillon.intake.people import at_local_time, enrich, people
from carillon.intake.plan import PlanRules, plan
from carillon.intake.telling import tell_gated, tell_skipped

MOST_ROUTES = 5000
"""Routes written in one statement; a single notification may have more."""

CODES = frozenset({"recipient_not_found"})
"""Error codes that operators see unchanged; every other code becomes invalid_payload."""

Planned = tuple[Arrival, Intent, Enrolment]


class OrderedIntake:
    """Satisfies OrderedAcceptor: it stops before the first intent whose people cannot be looked up."""

    def __init__(
        self,
        *,
        ledger: IntakeLedger,
        templates: Templates,
        directory: Directory | None,
        signal: Signal,
        rules: PlanRules,
        observer: Observer,
        ids: Ids,
        clock: Clock,
        add_choices: Callable[[Intent], Awaitable[Intent]] | None = None,
        erased: ErasedAddresses | None = None,
    ) -> None:
        self._add_choices = add_choices
        self._ledger = ledger
        self._contents = Contents(templates, rules, clock, erased)
        self._directory = directory
        self._signal = signal
        self._rules = rules
        self._observe = observer
        self._ids = ids
        self._clock = clock

    async def accept_in_order(self, arrivals: Sequence[Arrival]) -> Progress:
        found = await self._look_up(arrivals)
        planned: list[Planned] = []
        flawed: list[tuple[Arrival, Malformed]] = []
        done, stopped_by = 0, None
        for arrival, known in zip(arrivals, await self._people(arrivals, found), strict=True):
            if isinstance(arrival.read, Malformed):
                flawed.append((arrival, arrival.read))
            else:
                try:
                    if not isinstance(known, Intent):
                        raise known
                    planned.append((arrival, known, await self._plan(arrival, known)))
                except BadIntent as error:
                    code = error.code if error.code in CODES else "invalid_payload"
                    flawed.append((arrival, _malformed(arrival, code, str(error))))
                except DirectoryUnavailable as error:
                    stopped_by = str(error)
                    break
            done += 1
        answers = await self._enrol(planned)
        conflicts = [
            (one[0], _malformed(one[0], *_said(answer)), isinstance(answer, Conflict) and answer.expired)
            for one, answer in zip(planned, answers, strict=True)
            if isinstance(answer, Conflict | str)
        ]
        kept = [(arrival, flaw, False) for arrival, flaw in flawed] + conflicts
        if kept:
            await self._ledger.keep_malformed([flaw for _, flaw, _ in kept])
        faultpoint("after_accept_commit")
        self._tell(planned, answers, kept)
        return Progress(done, stopped_by)

    async def _look_up(self, arrivals: Sequence[Arrival]) -> dict[str, Found]:
        if self._directory is None:
            return {}
        asked = [user for arrival in arrivals if isinstance(arrival.read, Intent) for user in people(arrival.read)]
        return await self._directory.find(asked) if asked else {}

    async def _people(
        self, arrivals: Sequence[Arrival], found: Mapping[str, Found]
    ) -> list[Intent | BadIntent | DirectoryUnavailable]:
        """Each intent with what its people are and want, or what is wrong with it; side by side, as one query."""
        asked = (self._known(arrival.read, found) for arrival in arrivals)
        return [await one for one in asked] if self._add_choices is None else await asyncio.gather(*asked)

    async def _known(
        self, read: Intent | Malformed, found: Mapping[str, Found]
    ) -> Intent | BadIntent | DirectoryUnavailable:
        if isinstance(read, Malformed):
            return BadIntent(read.failure_code, read.failure_message)
        try:
            intent = await self._contents.categorised(read if self._directory is None else enrich(read, found))
            return at_local_time(intent if self._add_choices is None else await self._add_choices(intent))
        except (BadIntent, DirectoryUnavailable) as error:
            return error

    async def _plan(self, arrival: Arrival, intent: Intent) -> Enrolment:
        contents, now = await self._contents.of(rendered_as(intent)), self._clock.wall()
        own_id = intent.notification_id or arrival.stream_entry_id or self._ids()
        planned = plan(intent, contents, own_id, self._rules, now)
        return throttled(intent, gathered(intent, planned, self._rules, self._ids, now), self._rules, self._ids, now)

    async def _enrol(self, planned: Sequence[Planned]) -> list[Enrolled | str]:
        answers: list[Enrolled | str] = []
        for chunk in _chunks([enrolment for _, _, enrolment in planned]):
            answers += await self._enrol_chunk(chunk)
        return answers

    async def _enrol_chunk(self, chunk: Sequence[Enrolment]) -> list[Enrolled | str]:
        """One answer per enrolment; a text says why the ledger can never store that one."""
        try:
            return list(await self._ledger.enrol(chunk))
        except LedgerUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one that the ledger cannot store must not stop the others
            if len(chunk) == 1:
                return [f"the ledger cannot store it: {type(error).__name__}"]
        return [answer for one in chunk for answer in await self._enrol_chunk([one])]

    def _tell(
        self,
        planned: Sequence[Planned],
        answers: Sequence[Enrolled | str],
        kept: Sequence[tuple[Arrival, Malformed, bool]],
    ) -> None:
        rang = False
        for (_, intent, enrolment), answer in zip(planned, answers, strict=True):
            match answer:
                case Accepted(notification_id):
                    rang = True
                    routes = len(enrolment.routes)
                    self._observe(IntentAccepted(notification_id=notification_id, routes=routes, **named(intent)))
                    tell_skipped(self._observe, intent, answer)
                    tell_gated(self._observe, intent, answer, enrolment)
                case Duplicate(notification_id):
                    self._observe(IntentRepeated(notification_id=notification_id, outcome="duplicate", **named(intent)))
                case Conflict() | str():
                    pass
                case _:
                    assert_never(answer)
        if rang:
            self._signal.ring()
        for arrival, flaw, expired in kept:
            self._observe(_event(arrival, flaw, expired=expired))


def _said(answer: Enrolled | str) -> tuple[str, str]:
    if isinstance(answer, str):
        return "invalid_payload", answer
    return "idempotency_conflict", f"the key was used for other content before, by {answer.notification_id}"


def _chunks(enrolments: Sequence[Enrolment]) -> list[list[Enrolment]]:
    chunks: list[list[Enrolment]] = []
    room = 0
    for enrolment in enrolments:
        if len(enrolment.routes) > room:
            chunks.append([])
            room = MOST_ROUTES
        chunks[-1].append(enrolment)
        room -= len(enrolment.routes)
    return chunks


def _malformed(arrival: Arrival, code: str, message: str) -> Malformed:
    intent = arrival.read
    return Malformed(
        stream_entry_id=arrival.stream_entry_id,
        failure_code=code,
        failure_message=message,
        raw_fields=arrival.raw_fields,
        notification_type=intent.notification_type,
        producer=intent.producer,
        idempotency_key=intent.idempotency_key,
    )


def _event(arrival: Arrival, flaw: Malformed, *, expired: bool) -> IntentMalformed:
    # Keep the values of the entry even if they are invalid, because operators search for them.
    raw = {name: value for name, value in arrival.raw_fields.items() if isinstance(value, str) and value}
    return IntentMalformed(
        stream_entry_id=flaw.stream_entry_id,
        failure_code=flaw.failure_code,
        failure_message=flaw.failure_message,
        notification_type=flaw.notification_type,
        producer=flaw.producer,
        audience_kind=raw.get("audience_kind"),
        idempotency_key=flaw.idempotency_key,
        request_id=raw.get("request_id"),
        trace_id=raw.get("trace_id"),
        reservation_expired=expired,
    )
