"""Acceptance: an intent is checked, rendered, planned and written down before anybody is told that it was."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, assert_never

from carillon.coalesce import Coalescer
from carillon.domain.errors import BadIntent
from carillon.domain.events import IntentAccepted, IntentRepeated
from carillon.domain.explain import Tell
from carillon.domain.intents import Intent
from carillon.domain.notifications import Acceptance, Accepted, Conflict, Duplicate, Enrolled, Enrolment
from carillon.domain.ports import ClaimOnAccept, Ids, IntakeLedger, Observer, Signal, Templates
from carillon.faultpoint import faultpoint
from carillon.intake.contents import Contents
from carillon.intake.plan import PlanRules, plan


class Intake:
    """Accepts intents; requests that arrive together share one commit."""

    def __init__(
        self,
        *,
        ledger: IntakeLedger,
        templates: Templates,
        signal: Signal,
        rules: PlanRules,
        observer: Observer,
        ids: Ids,
        acquaint: Callable[[Intent], Awaitable[Intent]] | None = None,
        claim_on_accept: ClaimOnAccept | None = None,
        max_batch: int = 500,
        max_pending: int = 10_000,
    ) -> None:
        self._contents = Contents(templates, rules)
        self._signal = signal
        self._rules = rules
        self._observe = observer
        self._ids = ids
        self._acquaint = acquaint
        self._ledger = ledger
        self._claim_on_accept = claim_on_accept
        self._enrolments: Coalescer[Enrolment, Enrolled] = Coalescer(
            self._enrol, max_batch=max_batch, max_pending=max_pending
        )

    async def accept(self, intent: Intent) -> Acceptance:
        """Write the intent down; returns after the commit, or raises and nothing was stored."""
        enrolment = await self.planned(intent)
        enrolled = await self._enrolments.add(enrolment)
        faultpoint("after_accept_commit")
        return self._answer(intent, enrolment, enrolled)

    async def planned(self, intent: Intent, tell: Tell | None = None) -> Enrolment:
        """What would be written down; raises BadIntent for what cannot be sent; `tell` hears of every gate passed."""
        if self._acquaint is not None:
            intent = await self._acquaint(intent)
        return plan(intent, await self._contents.of(intent, tell), intent.notification_id or self._ids(), self._rules)

    async def drain(self) -> None:
        """Wait for what is being written now."""
        await self._enrolments.drain()

    async def _enrol(self, batch: Sequence[Enrolment]) -> list[Enrolled]:
        """Write a batch; an idle worker claims it in the same commit, otherwise the signal wakes a worker."""
        taken = None if self._claim_on_accept is None else await self._claim_on_accept(batch)
        if taken is not None:
            return taken
        answers = await self._ledger.enrol(batch)
        if any(isinstance(answer, Accepted) for answer in answers):
            self._signal.ring()
        return answers

    def _answer(self, intent: Intent, enrolment: Enrolment, enrolled: Enrolled) -> Acceptance:
        told = {"notification_id": enrolled.notification_id, **named(intent)}
        match enrolled:
            case Accepted():
                self._observe(IntentAccepted(routes=len(enrolment.routes), **told))
                return Acceptance(enrolled.notification_id, self._queue(enrolment.routes[0].lane))
            case Duplicate():
                self._observe(IntentRepeated(outcome="duplicate", **told))
                return Acceptance(enrolled.notification_id, self._queue(enrolled.lane), replayed=True)
            case Conflict():
                self._observe(IntentRepeated(outcome="conflict", **told))
                raise key_conflict()
            case _:
                assert_never(enrolled)

    def _queue(self, lane: int) -> str:
        return self._rules.lanes.by_rank(lane).queue_name


def key_conflict() -> BadIntent:
    """The answer to a key that stands for something else."""
    return BadIntent(
        "IDEMPOTENCY_CONFLICT", "this idempotency key was used for a different request", field="Idempotency-Key"
    )


def named(intent: Intent) -> dict[str, Any]:
    """What every event of an intent is recognised by."""
    return {
        "notification_type": intent.notification_type,
        "producer": intent.producer,
        "audience_kind": intent.audience_kind,
        "idempotency_key": intent.idempotency_key,
        "request_id": intent.request_id,
        "trace_id": intent.trace_id,
    }
