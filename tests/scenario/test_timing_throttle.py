"""Throttles, urgent categories and local times from outside: under moved time, on both engines."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import carillon
from carillon.client import Rejected
from carillon.domain.digests import read_throttle, recent
from carillon.domain.errors import BadIntent, ConfigurationError
from carillon.domain.intents import Intent, Recipient
from carillon.domain.timing import Timing
from carillon.intake.people import at_local_time
from carillon.testing import Outbox

CONFIG = """extends = "local"
[categories.news]
throttle = "2 in 1h"
[categories.chat]
throttle = "1 in 1h"
overflow = "digest"
[categories.security]
urgent = true
"""
ADA = {"channel": "email", "recipient": "ada@example.org", "data": {"name": "Ada", "link": "https://example.org/"}}
BOB = {**ADA, "recipient": "bob@example.org"}


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    config = tmp_path / "carillon.toml"
    config.write_text(CONFIG)
    with Outbox(tmp_path, config) as outbox:
        yield outbox


@pytest.mark.req("P-304")
def test_more_than_the_throttle_allows_is_skipped_until_its_time_is_over(outbox: Outbox) -> None:
    answers = [outbox.send("welcome", category="news", **ADA) for _ in range(3)]
    assert [one.status for one in answers] == ["queued", "queued", "skipped"]
    outbox.send("welcome", category="news", **BOB)
    outbox.send("welcome", **ADA)
    outbox.assert_sent("welcome", recipient="ada@example.org", times=3)
    outbox.assert_sent("welcome", recipient="bob@example.org")
    (route,) = outbox.wait(answers[2].notification_id).routes
    assert (route.gate, route.last_error) == ("throttle", "the person gets at most 2 in 1h")
    outbox.clock.advance("59m")
    assert outbox.send("welcome", category="news", **ADA).status == "skipped"
    outbox.clock.advance("2m")
    assert outbox.send("welcome", category="news", **ADA).status == "queued"


@pytest.mark.req("P-304")
def test_a_repeat_counts_once(outbox: Outbox) -> None:
    for _ in range(3):
        outbox.send("welcome", category="news", idempotency_key="once", **ADA)
    assert outbox.send("welcome", category="news", **ADA).status == "queued"


@pytest.mark.req("P-304", "P-303")
def test_what_is_too_much_is_told_in_a_digest(outbox: Outbox) -> None:
    first, *rest = [outbox.send("welcome", category="chat", **ADA).notification_id for _ in range(4)]
    outbox.assert_sent("welcome")
    assert [outbox.wait(name).routes[0].gate for name in rest] == ["digest"] * 3
    outbox.clock.advance("1h")
    told = [one for one in outbox.assert_sent("welcome", times=2) if one.notification_id != first]
    assert outbox.wait(told[0].notification_id).metadata["digest"]["members"] == rest


@pytest.mark.req("P-304")
async def test_replicas_on_postgresql_count_together(postgres_dsn: str, tmp_path: Path) -> None:
    config = tmp_path / "carillon.toml"
    config.write_text(CONFIG)
    environ = {"CARILLON_LEDGER__ALLOW_UNSAFE": "1"}
    where = str(postgres_dsn)
    async with (
        carillon.open(where, config=config, environ=environ) as one,
        carillon.open(where, config=config, environ=environ) as other,
    ):
        answers = await asyncio.gather(*(c.send("welcome", category="news", **ADA) for c in (one, other) * 5))
    assert sorted(answer.status for answer in answers) == ["queued"] * 2 + ["skipped"] * 8


@pytest.mark.req("P-304")
def test_a_throttle_that_cannot_be_read_refuses_the_start(tmp_path: Path) -> None:
    config = tmp_path / "carillon.toml"
    config.write_text(CONFIG.replace("2 in 1h", "often"))
    with pytest.raises(ConfigurationError, match=r"categories\.news\.throttle"), Outbox(tmp_path, config):
        pass


@pytest.mark.req("P-304")
@pytest.mark.parametrize("text", ["0 in 1h", "3 per 1h", "3 in soon", "", "9999 in 1h", "3 in 0"])
def test_what_is_no_throttle(text: str) -> None:
    assert read_throttle(text, "skip") is None


@pytest.mark.req("P-304")
def test_only_so_many_times_are_kept() -> None:
    throttle = read_throttle("2 in 10s", "skip")
    assert throttle is not None
    assert recent([1_000, 5_000, 9_000, 10_000], throttle, 15_000) == [9_000, 10_000]


def at(local: str, zone: str | None) -> str:
    person = Recipient(ref="user:7", user_id="7", time_zone=zone)
    intent = Intent(
        notification_type="t",
        producer="p",
        recipients=(person,),
        channels=("push",),
        payload={},
        content={},
        timing=Timing(local_time=local),
    )
    found = at_local_time(intent).scheduled_for_ms
    assert found is not None
    return datetime.fromtimestamp(found / 1000, UTC).isoformat()


@pytest.mark.req("P-305")
@pytest.mark.parametrize(
    ("local", "zone", "moment"),
    [
        ("2027-01-31T18:00:00", None, "2027-01-31T18:00:00+00:00"),
        ("2027-01-31T18:00:00", "Asia/Tokyo", "2027-01-31T09:00:00+00:00"),
        ("2027-07-31T18:00:00", "Europe/Berlin", "2027-07-31T16:00:00+00:00"),
        # Half past two does not exist in the night in which clocks go forward, and comes twice in the other one.
        ("2027-03-28T02:30:00", "Europe/Berlin", "2027-03-28T01:30:00+00:00"),
        ("2027-10-31T02:30:00", "Europe/Berlin", "2027-10-31T00:30:00+00:00"),
        ("2027-04-04T01:45:00", "Australia/Lord_Howe", "2027-04-03T14:45:00+00:00"),
    ],
)
def test_a_local_time_is_right_over_changes_of_clocks(local: str, zone: str | None, moment: str) -> None:
    assert at(local, zone) == moment


@pytest.mark.req("P-305")
def test_two_people_in_two_zones_need_two_sends() -> None:
    people = tuple(Recipient(ref=f"user:{zone}", time_zone=zone) for zone in ("Asia/Tokyo", "Europe/Berlin"))
    intent = Intent(
        notification_type="t",
        producer="p",
        recipients=people,
        channels=("push",),
        payload={},
        content={},
        timing=Timing(local_time="2027-01-31T18:00:00"),
    )
    with pytest.raises(BadIntent, match="several time zones"):
        at_local_time(intent)


@pytest.mark.req("P-305")
@pytest.mark.parametrize(
    "wrong",
    [
        {"scheduled_for": "2090-01-01T09:00:00"},
        {"scheduled_for": "2090-01-01T09:00:00Z", "time_zone": "recipient"},
        {"time_zone": "recipient"},
        {"scheduled_for": "2090-01-01T09:00:00", "time_zone": "Europe/Berlin"},
    ],
)
def test_a_schedule_that_says_two_things_is_refused(outbox: Outbox, wrong: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        outbox.send("welcome", **wrong, **ADA)
    assert refused.value.code == "VALIDATION_ERROR"


@pytest.mark.req("P-305")
def test_a_local_time_waits(outbox: Outbox) -> None:
    accepted = outbox.send("welcome", scheduled_for="2090-01-01T09:00:00", time_zone="recipient", **ADA)
    found = outbox.get(accepted.notification_id)
    assert found is not None
    assert found.routes[0].next_attempt_at == "2090-01-01T09:00:00.000Z"


@pytest.mark.req("P-1101")
def test_what_is_too_much_is_told_at_its_own_time(outbox: Outbox) -> None:
    outbox.send("welcome", category="chat", **ADA)
    outbox.assert_sent("welcome")
    later = (datetime.now(UTC) + timedelta(hours=3)).isoformat()
    planned = [outbox.send("welcome", category="chat", scheduled_for=later, **ADA).notification_id for _ in range(2)]
    soon = outbox.send("welcome", category="chat", **ADA).notification_id
    outbox.clock.advance("61m")
    told = outbox.assert_sent("welcome", times=2)[-1]
    assert outbox.wait(told.notification_id).metadata["digest"]["members"] == [soon]
    outbox.clock.advance("2h")
    told = outbox.assert_sent("welcome", times=3)[-1]
    assert outbox.wait(told.notification_id).metadata["digest"]["members"] == planned


@pytest.mark.req("P-1109")
def test_the_last_moment_of_all_is_a_time_like_others(tmp_path: Path) -> None:
    config = tmp_path / "carillon.toml"
    config.write_text(f"{CONFIG}[preferences]\nquiet_hours = true\n")
    quiet = {"start_time": "22:00", "end_time": "07:00", "timezone": "Europe/Berlin"}
    with Outbox(tmp_path, config) as outbox:
        outbox.prefer("ada", contacts={"pushToken": "device-ada", "email": "ada@example.org"}, quiet_hours=quiet)
        about = {"channels": ["push", "email"], "until": "read", "after": "3000d"}
        last = "9999-12-31T23:59:59Z"
        sent = outbox.send("welcome", user_id="ada", data=ADA["data"], scheduled_for=last, **about)
        found = outbox.get(sent.notification_id)
        assert found is not None
        assert [str(route.next_attempt_at)[: len(last) - 1] for route in found.routes] == [last.removesuffix("Z")] * 2
    assert at("9999-12-31T23:59:59", "America/New_York")[: len(last) - 1] == last.removesuffix("Z")
