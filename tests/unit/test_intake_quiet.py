"""Quiet hours: what is put off, and until when."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from carillon.domain.intents import Intent, Priority, Recipient
from carillon.domain.people import Profile, QuietHours, is_off_day, quiet_until
from carillon.intake.people import with_preferences

NIGHT = QuietHours(enabled=True, start_time="22:00", end_time="07:00", timezone="Europe/Berlin")
EARLY = msgspec.structs.replace(NIGHT, end_time="02:30")
NOON = QuietHours(enabled=True, start_time="12:00", end_time="14:00")
INTENT = Intent(
    notification_type="x",
    producer="p",
    recipients=(Recipient(ref="user:ada", user_id="ada"),),
    channels=(),
    payload={},
    content={},
)


def unix(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("hours", "at", "until"),
    [
        (NIGHT, "2026-06-01T23:30:00+02:00", "2026-06-02T07:00:00+02:00"),
        (NIGHT, "2026-06-02T06:59:59+02:00", "2026-06-02T07:00:00+02:00"),
        (NIGHT, "2026-06-02T07:00:00+02:00", None),
        (NIGHT, "2026-06-01T21:59:59+02:00", None),
        (NIGHT, "2026-06-01T22:00:00+02:00", "2026-06-02T07:00:00+02:00"),
        # The clocks go forward in this night; seven is still seven.
        (NIGHT, "2026-03-28T23:00:00+01:00", "2026-03-29T07:00:00+02:00"),
        # Half past two comes twice in this night, and not at all in that one: the first counts, and the gap moves it.
        (EARLY, "2026-10-25T02:15:00+02:00", "2026-10-25T02:30:00+02:00"),
        (EARLY, "2026-10-25T02:15:00+01:00", None),
        (EARLY, "2026-03-29T01:00:00+01:00", "2026-03-29T03:30:00+02:00"),
        (NOON, "2026-06-01T13:00:00+00:00", "2026-06-01T14:00:00+00:00"),
        (NOON, "2026-06-01T14:00:00+00:00", None),
        # The morning belongs to the evening before: the first of June is a Monday.
        (msgspec.structs.replace(NIGHT, days=("mon",)), "2026-06-01T23:30:00+02:00", "2026-06-02T07:00:00+02:00"),
        (msgspec.structs.replace(NIGHT, days=("mon",)), "2026-06-02T06:00:00+02:00", "2026-06-02T07:00:00+02:00"),
        (msgspec.structs.replace(NIGHT, days=("mon",)), "2026-06-02T23:30:00+02:00", None),
        (msgspec.structs.replace(NIGHT, days=("mon",)), "2026-06-01T06:00:00+02:00", None),
        (msgspec.structs.replace(NOON, days=("tue",)), "2026-06-01T13:00:00+00:00", None),
        (msgspec.structs.replace(NOON, enabled=False), "2026-06-01T13:00:00+00:00", None),
        (msgspec.structs.replace(NOON, end_time="12:00"), "2026-06-01T12:00:00+00:00", None),
    ],
)
def test_the_window(hours: QuietHours, at: str, until: str | None) -> None:
    assert quiet_until(hours, unix(at)) == (None if until is None else unix(until))


def scheduled(now: str, *, known: QuietHours | None = NOON, **changes: Any) -> float | None:
    told = with_preferences(
        msgspec.structs.replace(INTENT, **changes), {"ada": Profile(quiet_hours=known)}, unix(f"2026-06-01T{now}Z")
    )
    return None if told.scheduled_for_ms is None else told.scheduled_for_ms / 1000


@pytest.mark.req("S2-116")
def test_only_what_is_not_urgent_is_put_off() -> None:
    end = unix("2026-06-01T14:00:00Z")
    assert scheduled("13:00:00") == end
    assert scheduled("11:00:00") is None
    assert scheduled("13:00:00", priority=Priority.HIGH) is None
    assert scheduled("13:00:00", known=None) is None
    inside, after = round(unix("2026-06-01T13:30:00Z") * 1000), round(unix("2026-06-01T15:00:00Z") * 1000)
    assert scheduled("09:00:00", scheduled_for_ms=inside) == end
    assert scheduled("13:00:00", scheduled_for_ms=after) == after / 1000
    assert scheduled("13:00:00", scheduled_for_ms=0) == end


@pytest.mark.req("S2-116")
def test_without_being_asked_to_nothing_is_put_off() -> None:
    told = with_preferences(INTENT, {"ada": Profile(quiet_hours=NOON)}, None)
    assert told.scheduled_for_ms is None


DAYS = ("12-25", "12-26", "2027-01-01")


@pytest.mark.req("P-326")
@pytest.mark.parametrize(
    ("moment", "ends"),
    [
        ("2026-12-24T12:00", None),
        ("2026-12-24T23:00", "2026-12-27T07:00"),
        ("2026-12-25T12:00", "2026-12-27T07:00"),
        ("2026-12-26T23:30", "2026-12-27T07:00"),
        ("2026-12-27T08:00", None),
        ("2027-12-25T08:00", "2027-12-27T07:00"),
        ("2026-12-31T23:00", "2027-01-02T07:00"),
        ("2028-01-01T12:00", None),
    ],
)
def test_a_holiday_is_quiet_all_day(moment: str, ends: str | None) -> None:
    zone = dt.UTC
    hours = QuietHours(enabled=True, start_time="22:00", end_time="07:00", off_days=DAYS)
    found = quiet_until(hours, dt.datetime.fromisoformat(moment).replace(tzinfo=zone).timestamp())
    said = None if found is None else dt.datetime.fromtimestamp(found, zone).isoformat(timespec="minutes")[:16]
    assert said == ends


@pytest.mark.req("P-326")
def test_a_calendar_without_an_end_is_not_waited_for_for_ever() -> None:
    every = tuple(f"{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 32))
    hours = QuietHours(enabled=True, start_time="00:00", end_time="00:00", off_days=every)
    found = quiet_until(hours, 1_800_000_000.0)
    assert found is not None
    assert found - 1_800_000_000.0 < 3 * 366 * 86_400


@pytest.mark.req("P-326")
@pytest.mark.parametrize("day", ["25-12", "12/25", "", "2027-13-01", "02-30", "1225"])
def test_what_is_no_day(day: str) -> None:
    assert not is_off_day(day)
