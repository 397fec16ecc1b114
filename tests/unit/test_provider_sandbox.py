"""The sandbox: what it answers, what it remembers, how it is drilled."""

import json
from pathlib import Path
from typing import Any

import pytest

from carillon.domain.errors import ConfigurationError
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.providers import Tools, load
from carillon.providers.http import HttpClient
from carillon.providers.sandbox import Drill, Sandbox
from tests.support.dispatches import MESSAGE, dispatch

NOW = 1_700_000_000.25


class StillClock:
    """Time that only the sandbox's own waiting moves."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    def wall(self) -> float:
        return NOW

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def sandbox(clock: StillClock | None = None, **options: Any) -> Sandbox:
    found = load("box", "sandbox", options, Tools(clock or StillClock(), lambda: 0.5, HttpClient()))
    assert isinstance(found, Sandbox)
    return found


async def test_by_default_everything_is_sent_and_named_the_same_each_time() -> None:
    box = sandbox()
    first = await box.send(dispatch())
    assert first == await box.send(dispatch(attempt=2)) == await sandbox().send(dispatch())
    assert isinstance(first, Sent)
    assert first.message_id is not None
    assert first.message_id.startswith("sandbox-")
    assert first != await box.send(dispatch(notification_id="another"))


@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        ("throttled", Throttled("drill: throttled")),
        ("unavailable", Unavailable("drill: unavailable", "drill")),
        ("refused", Refused("drill: refused", "drill")),
        ("unknown", Unknown("drill: unknown", "drill")),
    ],
)
async def test_each_outcome_by_settings_by_message_and_live(word: Any, outcome: Outcome) -> None:
    assert await sandbox(outcome=word).send(dispatch()) == outcome
    assert await sandbox().send(dispatch(metadata={"sandbox": {"outcome": word}})) == outcome
    box = sandbox()
    box.drill("webhook", Drill(outcome=word))
    assert await box.send(dispatch()) == outcome
    assert isinstance(await box.send(dispatch(channel="sms")), Sent)
    assert box.drills() == {"webhook": Drill(outcome=word)}
    box.drill("webhook", None)
    assert isinstance(await box.send(dispatch()), Sent)
    box.drill("*", Drill(outcome=word))
    assert await box.send(dispatch(channel="sms")) == outcome


async def test_the_message_outranks_the_channel_and_the_channel_all() -> None:
    box = sandbox(outcome="unknown")
    box.drill("*", Drill(outcome="unavailable"))
    box.drill("webhook", Drill(outcome="throttled", retry_after=3.0))
    assert await box.send(dispatch()) == Throttled("drill: throttled", 3.0)
    marked = dispatch(metadata={"sandbox": {"outcome": "refused", "recipient_gone": True}, "other": 1})
    assert await box.send(marked) == Refused("drill: refused", "drill", recipient_gone=True)
    assert isinstance(await box.send(dispatch(channel="sms")), Unavailable)


@pytest.mark.parametrize(
    ("options", "metadata"),
    [({"outcome": "unavailable", "fail_times": 2}, None), ({}, {"sandbox": {"outcome": "unavailable", "times": 2}})],
)
async def test_only_the_first_calls_fail(options: dict[str, Any], metadata: object) -> None:
    box = sandbox(**options)
    outcomes = [await box.send(dispatch(attempt=attempt, metadata=metadata)) for attempt in (1, 2, 3, 4)]
    assert [type(outcome) for outcome in outcomes] == [Unavailable, Unavailable, Sent, Sent]
    # Another process sees only the later attempts.
    assert isinstance(await sandbox(**options).send(dispatch(attempt=3, metadata=metadata)), Sent)


async def test_a_deferred_route_comes_back_with_the_same_attempt() -> None:
    box = sandbox()
    marked = dispatch(attempt=1, metadata={"sandbox": {"outcome": "throttled", "times": 2}})
    outcomes = [await box.send(marked) for _ in range(3)]
    assert [type(outcome) for outcome in outcomes] == [Throttled, Throttled, Sent]


async def test_a_slow_answer_is_waited_for_until_the_deadline() -> None:
    clock = StillClock()
    box = sandbox(clock, delay_seconds=2.0)
    assert isinstance(await box.send(dispatch(timeout_seconds=5.0)), Sent)
    late = await box.send(dispatch(timeout_seconds=1.5))
    assert late == Unknown("the sandbox did not answer in time", "timeout")
    assert clock.slept == [2.0, 1.5]


async def test_many_at_once_get_one_answer_each_in_order() -> None:
    clock = StillClock()
    box = sandbox(clock)
    calls = [
        dispatch(),
        dispatch(metadata={"sandbox": {"outcome": "refused"}}),
        dispatch(metadata={"sandbox": {"delay_seconds": 9}}, timeout_seconds=4.0),
    ]
    assert [type(outcome) for outcome in await box.send_many(calls)] == [Sent, Refused, Unknown]
    assert clock.slept == [4.0]
    assert await box.send_many([]) == []


@pytest.mark.parametrize(
    "mark",
    [
        {"outcome": "nonsense"},
        {"times": -1},
        {"extra": 1},
        "refused",
        {"delaySeconds": "x"},
        {"retryAfter": 1, "retry_after": 1},
    ],
)
async def test_a_drill_that_is_none_is_refused_aloud(mark: object) -> None:
    outcome = await sandbox().send(dispatch(metadata={"sandbox": mark}))
    assert isinstance(outcome, Refused)
    assert outcome.classification == "bad_drill"
    assert outcome.error.startswith("metadata.sandbox: ")


@pytest.mark.req("P-1020")
@pytest.mark.parametrize("gone", ["recipientGone", "recipient_gone"])
@pytest.mark.parametrize("wait", ["retryAfter", "retry_after"])
async def test_a_drill_is_written_as_the_rest_of_the_api_and_may_have_the_names_of_the_past(
    gone: str, wait: str
) -> None:
    refused = dispatch(metadata={"sandbox": {"outcome": "refused", gone: True}})
    assert await sandbox().send(refused) == Refused("drill: refused", "drill", recipient_gone=True)
    throttled = dispatch(metadata={"sandbox": {"outcome": "throttled", wait: 3}})
    assert await sandbox().send(throttled) == Throttled("drill: throttled", 3.0)


@pytest.mark.parametrize("text", ['{"note":"the \\"sandbox\\""}', '{"sandbox":null}', "[]", "{}"])
async def test_other_metadata_is_left_alone(text: str) -> None:
    assert isinstance(await sandbox().send(dispatch(metadata_json=text)), Sent)


async def test_captured_keeps_the_last() -> None:
    box = sandbox(keep=3)
    for number in range(5):
        await box.send(dispatch(notification_id=str(number), address="somewhere"))
    kept = box.captured()
    assert [captured.notification_id for captured in kept] == ["2", "3", "4"]
    assert (kept[0].message, kept[0].address, kept[0].outcome, kept[0].at) == (MESSAGE, "somewhere", "sent", NOW)


async def test_the_vendors_book_has_a_line_for_what_was_taken(tmp_path: Path) -> None:
    book = tmp_path / "book.jsonl"
    for word in ("sent", "unknown", "refused", "throttled", "unavailable"):
        box = sandbox(outcome=word, ledger_path=str(book))
        await box.send(dispatch(notification_id=word, attempt=3))
        await box.aclose()
        await box.aclose()
    lines = [json.loads(line) for line in book.read_text().splitlines()]
    assert [line["notification_id"] for line in lines] == ["sent", "unknown"]
    assert lines[0]["id"] == "sent/webhook:user-7"
    assert (lines[0]["route_id"], lines[0]["attempt"]) == ("webhook:user-7", 3)
    assert lines[0]["time_us"] == 1_700_000_000_250_000
    assert set(lines[0]) == {"id", "notification_id", "route_id", "attempt", "pid", "time_us"}


def test_a_book_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^providers\.box: .*No such file"):
        sandbox(ledger_path=str(tmp_path / "absent" / "book"))


async def test_counts_of_the_longest_unseen_are_forgotten() -> None:
    box = sandbox(outcome="throttled", fail_times=1)
    assert isinstance(await box.send(dispatch()), Throttled)
    assert isinstance(await box.send(dispatch()), Sent)
    for number in range(10_000):
        await box.send(dispatch(notification_id=str(number)))
    assert isinstance(await box.send(dispatch()), Throttled)
