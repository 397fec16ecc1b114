"""The ledger as a dictionary: what any engine must answer, without locks, clocks or SQL."""

import msgspec

from carillon.domain.claims import Claim, Settled
from carillon.domain.notifications import Accepted, Conflict, Duplicate, Enrolled, Enrolment
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Skip, Verdict, verdict_word

Key = tuple[str, str]


class ModelRoute(msgspec.Struct):
    provider: str
    status: str = "pending"
    attempts: int = 0
    before: int = 0
    token: int | None = None
    due: bool = True
    abandoned: bool = False

    @property
    def is_open(self) -> bool:
        return self.status in {"pending", "failed"}


class Model:
    """Time is one bit per route: due, or not yet."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, str]] = {}
        self.routes: dict[Key, ModelRoute] = {}
        self.noted: dict[int, tuple[str, Settled]] = {}

    def enrol(self, enrolment: Enrolment) -> Enrolled:
        asked = enrolment.notification
        if asked.idempotency_key in self.keys:
            winner, fingerprint = self.keys[asked.idempotency_key]
            return Duplicate(winner, 2) if fingerprint == asked.request_fingerprint else Conflict(winner)
        if asked.idempotency_key is not None:
            self.keys[asked.idempotency_key] = (asked.notification_id, asked.request_fingerprint)
        for route in enrolment.routes:
            self.routes[asked.notification_id, route.route_id] = ModelRoute(route.provider)
        return Accepted(asked.notification_id)

    def due(self, provider: str) -> set[Key]:
        return {key for key, route in self.routes.items() if route.is_open and route.due and route.provider == provider}

    def claim(self, claim: Claim) -> None:
        """Follow a claim that an engine handed out, if it was allowed to."""
        route = self.routes[claim.key]
        assert claim.key in self.due(claim.provider)
        route.attempts += 1
        assert (claim.attempt, claim.attempts_before) == (route.attempts, route.before)
        assert claim.abandoned is route.abandoned
        route.token, route.due = claim.token, False

    def lapse(self) -> None:
        """Every claim first takes the leases apart that ran out."""
        for route in self.routes.values():
            if route.is_open and route.due and route.token is not None:
                route.token, route.abandoned = None, True

    def extend(self, claim: Claim) -> bool:
        route = self.routes[claim.key]
        if not route.is_open or route.token != claim.token:
            return False
        route.due = False
        return True

    def settle(self, claim: Claim, verdict: Verdict, *, noted: bool) -> Settled:
        route = self.routes[claim.key]
        settled = Settled.STALE
        if route.is_open and route.token == claim.token:
            settled = Settled.APPLIED
        elif route.is_open and isinstance(verdict, Finish):
            settled = Settled.ADOPTED
        answer = settled
        if settled is Settled.STALE and noted and self.noted.get(claim.token, ("",))[0] == verdict_word(verdict):
            answer = self.noted[claim.token][1]
        if noted:
            self.noted.setdefault(claim.token, (verdict_word(verdict), settled))
        if settled is not Settled.STALE:
            self._change(route, verdict)
        return answer

    def _change(self, route: ModelRoute, verdict: Verdict) -> None:
        route.token, route.abandoned = None, False
        match verdict:
            case Finish():
                route.status, route.due = "published", False
            case Bury():
                route.status, route.due = "dead_letter", False
            case Skip():
                route.status, route.attempts, route.due = "skipped", route.attempts - 1, False
            case Retry():
                route.status, route.due = "failed", verdict.delay == 0
            case Defer():
                route.attempts, route.due = route.attempts - 1, verdict.delay == 0
            case FailOver():
                route.status, route.due, route.before = "failed", verdict.delay == 0, route.attempts
                route.provider = verdict.provider

    def redrive(self, key: Key) -> bool:
        route = self.routes[key]
        if route.status != "dead_letter":
            return False
        route.status, route.attempts, route.before, route.due = "failed", 0, 0, True
        return True

    def cancel(self, notification_id: str) -> int:
        idle = [
            route
            for key, route in self.routes.items()
            if key[0] == notification_id and route.is_open and (route.token is None or route.due)
        ]
        for route in idle:
            route.status, route.token, route.due = "skipped", None, False
        return len(idle)

    def expire_leases(self) -> None:
        for route in self.routes.values():
            route.due = route.due or (route.is_open and route.token is not None)

    def make_due(self) -> None:
        for route in self.routes.values():
            route.due = route.is_open
