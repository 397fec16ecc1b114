"""What `explain` said is what then happens, attempt by attempt: random requests, policies, breakers and people."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import hypothesis
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from carillon.domain import expected
from carillon.domain.breaker import BreakerPolicy
from carillon.domain.decide import Standing
from carillon.domain.intents import Intent, Priority, Recipient
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.people import QuietHours, Wish
from carillon.domain.policy import PolicyTable, RetryPolicy
from carillon.domain.suppressions import Silence
from carillon.domain.verdicts import Bury, Defer, FailOver, Retry, Verdict
from carillon.outbound.breakers.memory import MemoryBreakers
from tests.support.clocks import ManualClock
from tests.support.explain_world import CHAINS, Case, Played, World, differences

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

retries = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 7),
    base_delay_seconds=st.sampled_from([2.0, 5.0, 9.5]),
    backoff_multiplier=st.sampled_from([1.0, 2.0, 3.0]),
    max_delay_seconds=st.sampled_from([10.0, 45.0]),
    jitter=st.sampled_from(["none", "additive", "proportional", "full"]),
    jitter_seconds=st.sampled_from([0.0, 0.5, 1.0]),
    first_exponent=st.integers(0, 1),
    failover_after_attempts=st.integers(1, 4) | st.just("max"),
    on_refused=st.sampled_from(["bury", "fail_over"]),
    on_unknown=st.sampled_from(["retry", "fail_over", "wait_for_receipt", "bury"]),
    on_open=st.sampled_from(["defer", "defer", "bury"]),
    receipt_wait_seconds=st.sampled_from([20.0, 61.0]),
    throttled_counts=st.booleans(),
    retry_after_cap_seconds=st.sampled_from([5.0, 12.0, 100.0]),
    give_up_after_seconds=st.sampled_from([0.0, 15.0, 40.0]),
)
breakers = st.builds(
    BreakerPolicy,
    failure_threshold=st.integers(1, 5),
    open_seconds=st.sampled_from([3.3137, 20.7119, 47.3391]),
    success_threshold=st.integers(1, 2),
    half_open_max_probes=st.integers(1, 2),
    probe_seconds=st.sampled_from([6.1311, 31.7717]),
)
quiet = st.builds(
    QuietHours,
    enabled=st.sampled_from([True, True, False]),
    start_time=st.sampled_from(["22:00", "00:00", "09:30"]),
    end_time=st.sampled_from(["07:00", "12:00", "23:59"]),
    timezone=st.sampled_from(["UTC", "Asia/Tokyo", "America/New_York"]),
)


@st.composite
def intents(draw: st.DrawFn) -> Intent:
    number = next(_numbers)
    channels = draw(st.sampled_from([("email",), ("sms",), ("email", "sms")]))
    synchronous = len(channels) == 1 and draw(st.integers(0, 7)) == 0
    people = 1 if synchronous else draw(st.sampled_from([1, 1, 1, 2]))
    recipients = tuple(
        Recipient(
            ref=f"user:{number}-{at}",
            user_id=f"{number}-{at}",
            # Now and then two people share an address, or one has none.
            addresses={name: f"{name}-{number}-{draw(st.integers(0, at))}" for name in draw(_known(channels))},
        )
        for at in range(people)
    )
    return Intent(
        notification_type="code",
        producer="shop",
        origin=draw(st.sampled_from(["shop", "auth"])),
        recipients=recipients,
        channels=channels,
        payload={},
        content={"number": number},
        tenant_id=draw(st.sampled_from([None, "acme"])),
        idempotency_key=f"key-{number}",
        priority=draw(st.sampled_from(list(Priority))),
        synchronous=synchronous,
        scheduled_for_ms=None if synchronous else draw(st.none() | st.integers(-40_000, 90_000)),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    intent = draw(intents())
    script = draw(st.lists(st.sampled_from(_OUTCOMES), min_size=1, max_size=5))
    wishes = {
        str(one.user_id): Wish(
            quiet_hours=draw(st.none() | quiet), channels=dict.fromkeys(draw(_rarely(intent.channels)), False)
        )
        for one in intent.recipients
        if draw(st.booleans())
    }
    failing = draw(st.lists(st.sampled_from(_NAMES), unique=True))
    return Case(
        intent=intent,
        policies=PolicyTable({"*/*": draw(retries), **({"shop/email": draw(retries)} if draw(st.booleans()) else {})}),
        breaker=draw(breakers),
        script=lambda route, attempt, provider: script[
            (attempt + _NAMES.index(provider) + ord(route[-1])) % len(script)
        ],
        # With 0 a full jitter never waits, and a throttled route would be called for ever at one moment.
        dice=draw(st.sampled_from([0.0625, 0.125, 0.5, 0.875])),
        wishes=wishes,
        silences=tuple(draw(_silences(intent.recipients, intent.channels, intent.tenant_id))),
        failures={name: draw(st.integers(1, 5)) for name in failing},
        since=draw(st.sampled_from([0.0, 2.5, 21.0, 50.0, 20_000.0])),
        probed=draw(st.none() | st.sampled_from(_NAMES)),
        repeats=not intent.synchronous and draw(st.integers(0, 15)) == 0,
    )


def _known(channels: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.integers(0, 15).map(lambda dice: channels if dice else ())


def _rarely(channels: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.integers(0, 7).map(lambda dice: () if dice else channels[:1])


def _silences(
    recipients: tuple[Recipient, ...], channels: tuple[str, ...], tenant: str | None
) -> st.SearchStrategy[list[Silence]]:
    found = [
        Silence(channel, one.addresses[channel], whose, "bounced", "operator", seconds)
        for one in recipients
        for channel in channels
        if channel in one.addresses
        for whose in ("", tenant or "other", "other")
        for seconds in (None, 1.0)
    ]
    return st.lists(st.sampled_from(found), max_size=1) if found else st.just([])


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

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def check(case: Case) -> None:
        found = runner.run(compare(world, case, twist))
        assert not found, f"{found}\n{case}"

    check()


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


@pytest.mark.parametrize("twist", [_as_given, _no_breakers])
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
    monkeypatch.setattr(expected, name, false)
    with pytest.raises(AssertionError, match="said"):
        play(here, 2000, 0)
