"""Counts what happens in a rehearsal, and makes its figures of it."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence

from carillon.domain.claims import Settled
from carillon.domain.events import BreakerChanged, Event, IntentAccepted, RouteAttempted
from carillon.domain.gate_events import RouteGated
from carillon.upkeep.rehearsals.figures import BreakerTime, Figures, Lateness, Slice
from carillon.upkeep.rehearsals.plan import RehearsalPlan

SLICES = 120
"""Into so many equal parts the chart divides the time."""
IDLE_SECONDS = 60.0
GRACE_SECONDS = 5.0
"""So long after its time a retry counts as waiting for something else, a breaker or a full group."""
_ENDED = frozenset({"finish", "bury", "skip"})


class Tally:
    """Watches the events of a rehearsal."""

    def __init__(self, plan: RehearsalPlan, limits: Mapping[str, float], begins: float, slice_seconds: float) -> None:
        """`limits` are the seconds after which a message of a channel is late."""
        self._plan = plan
        self._limits = limits
        self._begins = begins
        self._each = slice_seconds
        self.now = begins
        self.open: dict[str, tuple[float, float]] = {}
        """When each open notification was accepted, and how long it may take."""
        self.latencies: list[float] = []
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.breakers: dict[str, float] = {}
        self.breaker_times: list[BreakerTime] = []
        self.slices: dict[int, Slice] = {}
        self.last_late = 0.0
        self.peak = 0
        self._due: list[float] = []
        """When retries are due, the earliest first."""

    def due_in(self) -> float | None:
        """Seconds until the next retry; None if one is due by now, and a long time if none waits."""
        while self._due and self._due[0] <= self.now - GRACE_SECONDS:
            heapq.heappop(self._due)
        if not self._due:
            return IDLE_SECONDS
        return self._due[0] - self.now if self._due[0] > self.now else None

    def expect(self, notification_id: str, limit: float) -> None:
        """A notification is being accepted; it is late after `limit` seconds."""
        self.open[notification_id] = (self.now, limit)

    def __call__(self, event: Event) -> None:
        match event:
            case IntentAccepted():
                self.counts["accepted"] += 1
                self._slice().accepted += 1
                self.peak = max(self.peak, len(self.open))
            case RouteAttempted():
                self._attempted(event)
            case RouteGated():
                self._end(event.notification_id, "skipped")
            case BreakerChanged(endpoint=None):
                self._breaker(event)
            case _:
                pass

    def _attempted(self, event: RouteAttempted) -> None:
        if event.outcome != "sent":
            self._slice().failed_calls += 1
        if event.settled is Settled.STALE:
            return
        if event.verdict not in _ENDED:
            heapq.heappush(self._due, self.now + (event.delay_seconds or 0.0))
            return
        if event.verdict == "finish":
            self.counts["failed_over"] += event.failed_over
            self._end(event.notification_id, "delivered")
        elif event.verdict == "bury":
            self.reasons[event.classification or "unknown"] += 1
            self._slice().given_up += 1
            self._end(event.notification_id, "given_up")
        else:
            self._end(event.notification_id, "skipped")

    def _end(self, notification_id: str, how: str) -> None:
        began = self.open.pop(notification_id, None)
        if began is None:
            return
        self.counts[how] += 1
        if how != "delivered":
            return
        took = self.now - began[0]
        self.latencies.append(took)
        at = self._slice()
        at.delivered += 1
        if took > began[1]:
            self.counts["late"] += 1
            at.late += 1
            self.last_late = self.now - self._begins

    def _breaker(self, event: BreakerChanged) -> None:
        now = self.now - self._begins
        if event.after == "closed":
            since = self.breakers.pop(event.provider, None)
            if since is not None:
                self.breaker_times.append(BreakerTime(provider=event.provider, begins=since, ends=now))
        else:
            self.breakers.setdefault(event.provider, now)

    def _slice(self) -> Slice:
        number = int((self.now - self._begins) / self._each)
        found = self.slices.get(number)
        if found is None:
            found = self.slices[number] = Slice(begins=number * self._each)
        found.waiting = len(self.open)
        return found

    def figures(self, accepted_by: Mapping[str, Counter[str]], calls: int) -> Figures:
        """Everything, once the rehearsal has ended; `accepted_by` has each vendor's own count."""
        scale, seconds = self._plan.scale, self.now - self._begins
        ends = max((outage.ends for outage in self._plan.outages), default=None)
        sent = {name: count.total() * scale for name, count in accepted_by.items()}
        costs = {name: sent[name] * price for name, price in self._plan.prices.items() if name in sent}
        messages: Counter[str] = Counter()
        for count in accepted_by.values():
            messages.update(count)
        still = [BreakerTime(provider=name, begins=since, ends=None) for name, since in self.breakers.items()]
        return Figures(
            scale=scale,
            seconds=seconds,
            accepted=self.counts["accepted"] * scale,
            delivered=self.counts["delivered"] * scale,
            late=self.counts["late"] * scale,
            failed_over=self.counts["failed_over"] * scale,
            given_up=self.counts["given_up"] * scale,
            skipped=self.counts["skipped"] * scale,
            waiting=len(self.open) * scale,
            repeated=sum(1 for count in messages.values() if count > 1) * scale,
            calls=calls * scale,
            lateness=lateness(self.latencies),
            reasons={why: number * scale for why, number in self.reasons.most_common()},
            by_provider=sent,
            cost=sum(costs.values()),
            costs=costs,
            peak=self.peak * scale,
            caught_up=None if self.open or ends is None else max(0.0, self.last_late - ends),
            breakers=sorted([*self.breaker_times, *still], key=lambda one: one.begins),
            slices=self._filled(scale),
        )

    def _filled(self, scale: int) -> list[Slice]:
        """Every slice up to the end, multiplied; one in which nothing happened has what waited before it."""
        last = int((self.now - self._begins) / self._each)
        found: list[Slice] = []
        waiting = 0
        for number in range(last + 1):
            one = self.slices.get(number) or Slice(begins=number * self._each, waiting=waiting)
            waiting = one.waiting
            found.append(
                Slice(
                    begins=one.begins,
                    accepted=one.accepted * scale,
                    delivered=one.delivered * scale,
                    late=one.late * scale,
                    given_up=one.given_up * scale,
                    failed_calls=one.failed_calls * scale,
                    waiting=one.waiting * scale,
                )
            )
        return found


def lateness(latencies: Sequence[float]) -> Lateness | None:
    """The percentiles; None if nothing was delivered."""
    if not latencies:
        return None
    ordered = sorted(latencies)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    return Lateness(p50=at(0.5), p90=at(0.9), p99=at(0.99), longest=ordered[-1])
