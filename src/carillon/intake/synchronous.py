"""Acceptance for a caller who waits: written down and leased by this process in one commit."""

from collections.abc import Sequence
from typing import assert_never

from carillon.coalesce import Coalescer
from carillon.domain.errors import BadIntent
from carillon.domain.events import IntentAccepted, IntentRepeated
from carillon.domain.intents import Intent
from carillon.domain.notifications import Accepted, Conflict, Duplicate, Enrolment
from carillon.domain.ports import Observer
from carillon.domain.synchronous import Held, HeldEnrolment, Holding, HoldingLedger, Planner, Repeated, Unheld
from carillon.intake.accept import key_conflict, named

QUEUED_ONLY = frozenset({"inApp"})
"""Channels whose messages are fetched, so that nobody could be told of a delivery."""


class IntakeHolder:
    """Satisfies Holder; requests that arrive together share one commit, apart from those that are queued."""

    def __init__(
        self,
        planner: Planner,
        ledger: HoldingLedger,
        observer: Observer,
        *,
        owner: str,
        seconds: float,
        max_batch: int = 200,
        max_pending: int = 1000,
    ) -> None:
        self._planner = planner
        self._ledger = ledger
        self._observe = observer
        self._owner = owner
        self._seconds = seconds
        self._enrolments: Coalescer[Enrolment, HeldEnrolment] = Coalescer(
            self._write, max_batch=max_batch, max_pending=max_pending
        )

    async def hold(self, intent: Intent) -> Holding:
        enrolment = await self._planner.planned(intent)
        refuse_queued_only(enrolment)
        return self._answer(intent, await self._enrolments.add(enrolment))

    async def _write(self, batch: Sequence[Enrolment]) -> list[HeldEnrolment]:
        return await self._ledger.enrol_held(batch, self._owner, self._seconds)

    def _answer(self, intent: Intent, held: HeldEnrolment) -> Holding:
        enrolled = held.enrolled
        told = {"notification_id": enrolled.notification_id, **named(intent)}
        match enrolled:
            case Accepted():
                self._observe(IntentAccepted(routes=1, **told))
                if not held.claims:
                    return Unheld(enrolled.notification_id, "the address is suppressed")
                return Held(held.claims[0])
            case Duplicate():
                self._observe(IntentRepeated(outcome="duplicate", **told))
                return Repeated(enrolled.notification_id)
            case Conflict():
                self._observe(IntentRepeated(outcome="conflict", **told))
                raise key_conflict()
            case _:
                assert_never(enrolled)


def refuse_queued_only(enrolment: Enrolment) -> None:
    """Stop what nobody could be told of."""
    channel = enrolment.routes[0].channel
    if channel in QUEUED_ONLY:
        raise BadIntent("SYNCHRONOUS_UNAVAILABLE", f"{channel} is never synchronous", field="synchronous")
