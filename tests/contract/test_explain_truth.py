"""What `explain` said is what then happens, attempt by attempt: random requests, policies, breakers and people."""

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from carillon.domain import explain
from carillon.domain.breaker import BreakerPolicy
from carillon.domain.decide import Standing
from carillon.domain.intents import Intent, Priority, Recipient
from carillon.domain.notifications import Enrolled, Notification
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.people import PreferenceChange, QuietHours
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.ports import LookupLedger
from carillon.domain.store import Row
from carillon.domain.suppressions import Suppression, SuppressionTerms
from carillon.domain.timing import Timing
from carillon.domain.verdicts import Bury, Defer, FailOver, Retry, Verdict
from carillon.outbound.breakers import MemoryBreakers
from tests.support.clocks import ManualClock
from tests.support.explain_world import CHAINS, Case, Played, World, differences

pytestmark = pytest.mark.slow

SHARDS, EXAMPLES = 4, 500
_NAMES = [name for chain in CHAINS.values() for name in chain]
_OUTCOMES: list[Outcome] = [
    Unavailable("down"),
    Unavailable("down", retry_after=17.25),
    Unknown("no answer"),
    Refused("no"),
    Refused("gone", recipient_gone=True),
    Throttled("slow down"),
    Throttled("slow down", retry_after=11.75),
    Sent("id"),
]
_numbers = itertools.count(1)


class Drawn(random.Random):
    """Draws one case: Hypothesis spent more on drawing than the case on being played, and nothing is shrunk here."""

    def retries(self) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=self.randint(1, 7),
            base_delay_seconds=self.choice([2.0, 5.0, 9.5]),
            backoff_multiplier=self.choice([1.0, 2.0, 3.0]),
            max_delay_seconds=self.choice([10.0, 45.0]),
            jitter=self.choice(["none", "additive", "proportional", "full"]),
            jitter_seconds=self.choice([0.0, 0.5, 1.0]),
            first_exponent=self.randint(0, 1),
            failover_after_attempts=self.choice([self.randint(1, 4), "max"]),
            on_refused=self.choice(["bury", "fail_over"]),
            on_unknown=self.choice(["retry", "fail_over", "wait_for_receipt", "bury"]),
            on_open=self.choice(["defer", "defer", "bury"]),
            receipt_wait_seconds=self.choice([20.0, 61.0]),
            throttled_counts=self.choice([False, True]),
            retry_after_cap_seconds=self.choice([5.0, 12.0, 100.0]),
            give_up_after_seconds=self.choice([0.0, 15.0, 40.0]),
        )

    def breaker(self) -> BreakerPolicy:
        return BreakerPolicy(
            failure_threshold=self.randint(1, 5),
            open_seconds=self.choice([3.3137, 20.7119, 47.3391]),
            success_threshold=self.randint(1, 2),
            half_open_max_probes=self.randint(1, 2),
            probe_seconds=self.choice([6.1311, 31.7717]),
        )

    def quiet(self) -> QuietHours:
        return QuietHours(
            enabled=self.choice([True, True, False]),
            start_time=self.choice(["22:00", "00:00", "09:30"]),
            end_time=self.choice(["07:00", "12:00", "23:59"]),
            timezone=self.choice(["UTC", "Asia/Tokyo", "America/New_York"]),
        )

    def one_in(self, number: int) -> bool:
        return self.randrange(number) == 0

    def intent(self) -> Intent:
        number = next(_numbers)
        channels = self.choice([("email",), ("sms",), ("email", "sms")])
        synchronous = len(channels) == 1 and self.one_in(8)
        people = 1 if synchronous else self.choice([1, 1, 1, 2])
        recipients = tuple(
            Recipient(
                ref=f"user:{number}-{at}",
                user_id=f"{number}-{at}",
                # Now and then two people share an address, or one has none.
                addresses={}
                if self.one_in(16)
                else {name: f"{name}-{number}-{self.randint(0, at)}" for name in channels},
            )
            for at in range(people)
        )
        return Intent(
            notification_type="code",
            producer="shop",
            origin=self.choice(["shop", "auth"]),
            recipients=recipients,
            channels=channels,
            payload={},
            content={"number": number},
            tenant_id=self.choice([None, "acme"]),
            idempotency_key=f"key-{number}",
            priority=self.choice(list(Priority)),
            synchronous=synchronous,
            scheduled_for_ms=None if synchronous else self.choice([None, 0, self.randint(-40_000, 90_000)]),
            timing=self.chain(channels) or self.timing(),
        )

    def chain(self, channels: tuple[str, ...]) -> Timing | None:
        """Half of those with two channels try one after the other; some expire in between."""
        if len(channels) == 1 or self.one_in(2):
            return None
        goal, after = (
            self.choice(["delivered", "read", "acknowledged"]),
            self.choice([0.5013, 13.0017, 90.0023, 9_000.0]),
        )
        return Timing(until=goal, after_seconds=after, ttl_seconds=self.choice([None, None, 71.9013, 20_000.0]))

    def timing(self) -> Timing:
        """Some expire before their first attempt, some between two, most never; offsets avoid exact ties."""
        if not self.one_in(3):
            return Timing()
        seconds = self.choice([0.0007, 1.1003, 7.7011, 33.3019, 71.9013, 400.0])
        key = self.choice([None, "k"])
        return Timing(ttl_seconds=seconds, expires_at_ms=1 if self.one_in(8) else None, collapse_key=key)

    def wish(self, channels: tuple[str, ...]) -> PreferenceChange:
        refused = channels[:1] if self.one_in(8) else ()
        return PreferenceChange(quiet_hours=self.choice([None, self.quiet()]), channels=dict.fromkeys(refused, False))

    def silences(self, intent: Intent) -> tuple[Suppression, ...]:
        found = [
            Suppression(channel, address, whose, "bounced", "operator", seconds)
            for one in intent.recipients
            for channel, address in one.addresses.items()
            for whose in ("", intent.tenant_id or "other", "other")
            # Some end before the request, some between its acceptance and the time it is scheduled for.
            for seconds in (None, 1.0, 2.5, 2.501, 30.0, 70.0)
        ]
        return tuple(self.sample(found, self.randint(1, 2))) if found and self.one_in(2) else ()

    def terms(self) -> SuppressionTerms:
        seconds = [None, 1.0, 6.5, 1e6]
        return SuppressionTerms(bounced=self.choice(seconds), invalid=self.choice(seconds))

    def case(self) -> Case:
        intent = self.intent()
        script = self.choices(_OUTCOMES, k=self.randint(1, 5))
        policies = {"*/*": self.retries(), **({"shop/email": self.retries()} if self.one_in(2) else {})}
        return Case(
            intent=intent,
            policies=PolicyTable(policies),
            breaker=self.breaker(),
            script=lambda route, attempt, provider: script[
                (attempt + _NAMES.index(provider) + ord(route[-1])) % len(script)
            ],
            # With 0 a full jitter never waits, and a throttled route would be called for ever at one moment.
            dice=self.choice([0.0625, 0.125, 0.5, 0.875]),
            wishes={str(one.user_id): self.wish(intent.channels) for one in intent.recipients if self.one_in(2)},
            silences=self.silences(intent),
            terms=self.terms(),
            failures={name: self.randint(1, 5) for name in self.sample(_NAMES, self.randint(0, len(_NAMES)))},
            since=self.choice([0.0, 2.5, 21.0, 50.0, 20_000.0]),
            probed=self.choice([None, self.choice(_NAMES)]),
            repeats=not intent.synchronous and self.one_in(16),
        )


Here: TypeAlias = tuple[asyncio.Runner, World]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with asyncio.Runner() as runner:
        world = runner.run(World.open(str(tmp_path / "world.db")))
        yield runner, world
        runner.run(world.ledger.aclose())


Twist = Callable[[Played], None]


async def compare(world: World, case: Case, twist: Twist | None = None) -> list[str]:
    # What is scheduled is meant from now on, whatever the time is in this world.
    when = case.intent.scheduled_for_ms
    if when is not None:
        now = round((world.clock.now + case.since) * 1000)
        case = msgspec.structs.replace(case, intent=msgspec.structs.replace(case.intent, scheduled_for_ms=now + when))
    played = await world.prepare(case)
    if twist is not None:
        twist(played)
    said = await played.explained()
    return differences(said, await played.happened())


def play(here: Here, examples: int, seed: int, twist: Twist | None = None) -> None:
    """Compare so many random cases; AssertionError shows the first that differs."""
    runner, world = here
    drawn = Drawn(seed)

    async def check() -> None:
        for number in range(examples):
            case = drawn.case()
            found = await compare(world, case, twist)
            assert not found, f"case {number} of seed {seed}: {found}\n{case}"

    runner.run(check())


@pytest.mark.parametrize("shard", range(SHARDS))
def test_what_explain_said_is_what_then_happens(here: Here, shard: int) -> None:
    play(here, EXAMPLES, shard)


def _old_forecast(_outcome: Outcome, policy: RetryPolicy, stands: Standing) -> Verdict:
    """The arithmetic that `explain` had of its own: every outcome is a failure, providers change by division."""
    if stands.attempt >= stands.max_attempts:
        return Bury("unavailable", "exhausted")
    wait = policy.delay(stands.attempt, stands.dice)
    if stands.next_provider is not None and stands.attempt % policy.failover_after(stands.max_attempts) == 0:
        return FailOver(stands.next_provider, wait)
    return Retry(wait)


def _as_given(played: Played) -> None:
    """Reads the intent as given: no preferences, no quiet hours."""
    played.planner = played.intake_with(None)


def _no_breakers(played: Played) -> None:
    """Takes every breaker for closed."""
    played.viewed = MemoryBreakers({"*": BreakerPolicy(failure_threshold=1000)}, ManualClock(), lambda _: None)


def _for_ever(played: Played) -> None:
    """Takes every suppression that a send causes for one without an end."""
    played.terms = SuppressionTerms(bounced=None, invalid=None)


class _Now:
    """Looks suppressions up as of now, also for what is due later."""

    def __init__(self, ledger: LookupLedger) -> None:
        self._ledger = ledger

    async def look_up_earlier(self, notification: Notification) -> Enrolled | None:
        return await self._ledger.look_up_earlier(notification)

    async def throttle_times(self, tenant_id: str | None, audience: str, category: str) -> list[int]:
        return await self._ledger.throttle_times(tenant_id, audience, category)

    async def person_digests(self, tenant_id: str | None, audience: str, limit: int) -> list[Row]:
        return await self._ledger.person_digests(tenant_id, audience, limit)

    async def group_calls(self, group: int) -> int:
        return await self._ledger.group_calls(group)

    async def suppression_in_force(
        self, channel: str, address: str, tenant_id: str | None, due_ms: int | None
    ) -> dict[str, Any] | None:
        del due_ms
        return await self._ledger.suppression_in_force(channel, address, tenant_id, None)


class _AnyTenant(_Now):
    """Takes another tenant's suppression for the caller's own."""

    async def suppression_in_force(
        self, channel: str, address: str, tenant_id: str | None, due_ms: int | None
    ) -> dict[str, Any] | None:
        for tenant in (tenant_id, "other"):
            found = await self._ledger.suppression_in_force(channel, address, tenant, due_ms)
            if found is not None:
                return found
        return None


def _as_of_now(played: Played) -> None:
    played.looked_up = _Now(played.looked_up)


def _of_any_tenant(played: Played) -> None:
    played.looked_up = _AnyTenant(played.looked_up)


@pytest.mark.parametrize("twist", [_as_given, _no_breakers, _for_ever, _as_of_now, _of_any_tenant])
def test_control_an_explanation_that_skips_a_gate_is_found_out(here: Here, twist: Twist) -> None:
    with pytest.raises(AssertionError, match="said"):
        play(here, 2000, 0, twist)


@pytest.mark.parametrize(
    ("name", "false"),
    [
        ("decide", _old_forecast),
        ("blocked_providers", lambda *_: set()),
        ("when_open", lambda *_: Defer(3.7)),
        ("provider_failed", lambda _: False),
    ],
)
def test_control_a_second_rule_is_found_out(
    here: Here, monkeypatch: pytest.MonkeyPatch, name: str, false: Callable[..., Any]
) -> None:
    monkeypatch.setattr(explain, name, false)
    with pytest.raises(AssertionError, match="said"):
        play(here, 2000, 0)
