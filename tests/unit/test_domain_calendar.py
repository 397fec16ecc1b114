"""Invitations as a calendar reads them; `icalendar` is the judge."""

import datetime as dt
from typing import Any

import icalendar
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.content.calendar import times_of, write_invitation
from carillon.domain.content.mail import Invitation
from carillon.domain.errors import BadIntent
from tests.support.examples import examples

START, END = "2030-06-01T19:00:00+02:00", "2030-06-01T20:30:00+02:00"
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=300)
STAMP = 1_700_000_000.9


def read(content: bytes) -> Any:
    calendar = icalendar.Calendar.from_ical(content)
    (event,) = calendar.walk("VEVENT")
    assert not event.errors
    return event


def event(**fields: object) -> Invitation:
    return Invitation(**{"title": "Tasting", "start": START, "end": END, **fields})  # type: ignore[arg-type]


@pytest.mark.req("P-119")
def test_a_calendar_reads_every_field() -> None:
    said = event(
        title="Tasting, with wine; and bread\\",
        organizer="host@example.org",
        location="Table 7\nby the window",
        description="Bring\r\nfriends",
        url="https://example.org/t?a=1,2;3",
        uid="tasting-1@example.org",
        sequence=3,
        method="REQUEST",
        reminder_minutes=15,
    )
    content = write_invitation(said, ["ada@example.org", "bob@example.org"], "made-up", STAMP)
    calendar = icalendar.Calendar.from_ical(content)
    assert (calendar["METHOD"], calendar["VERSION"]) == ("REQUEST", "2.0")
    found = read(content)
    assert found["SUMMARY"] == said.title
    assert found["LOCATION"] == said.location
    assert found["DESCRIPTION"] == "Bring\nfriends"
    assert (found["UID"], found["SEQUENCE"], found["STATUS"]) == ("tasting-1@example.org", 3, "CONFIRMED")
    assert found["URL"] == said.url
    assert found["ORGANIZER"] == "mailto:host@example.org"
    assert found["ATTENDEE"] == ["mailto:ada@example.org", "mailto:bob@example.org"]
    assert found["DTSTART"].dt == dt.datetime(2030, 6, 1, 17, tzinfo=dt.UTC)
    assert found["DTEND"].dt == dt.datetime(2030, 6, 1, 18, 30, tzinfo=dt.UTC)
    assert found["DTSTAMP"].dt == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    (alarm,) = found.walk("VALARM")
    assert alarm["TRIGGER"].dt == dt.timedelta(minutes=-15)


@pytest.mark.req("P-119")
def test_a_cancelled_event_says_so_and_a_plain_one_asks_nobody() -> None:
    cancelled = read(write_invitation(event(method="CANCEL", organizer="h@example.org"), ["a@b.example"], "u", 0))
    assert cancelled["STATUS"] == "CANCELLED"
    plain = read(write_invitation(event(), ["a@b.example"], "made-up", 0))
    assert plain["UID"] == "made-up"
    assert "ATTENDEE" not in plain


@pytest.mark.req("P-119")
@examples(200)
@given(TEXT, TEXT)
def test_whatever_is_said_no_line_appears_or_disappears(title: str, description: str) -> None:
    content = write_invitation(event(title=title, description=description), [], "u", 0)
    lines = content.split(b"\r\n")
    assert lines.pop() == b""
    assert all(len(line) <= 75 and b"\n" not in line for line in lines)
    # Every line of the file stands for itself; a continued one begins with a space.
    content.decode()
    found = read(content)
    assert (found["SUMMARY"], found["DESCRIPTION"]) == (title, description)
    assert len([line for line in lines if not line.startswith(b" ")]) == 15


@pytest.mark.parametrize(
    "fields",
    [
        {"start": "2030-06-01T19:00:00"},
        {"start": "soon"},
        {"end": START},
        {"end": "9999-12-31T23:59:59-23:00"},
        {"method": "REQUEST"},
        {"method": "CANCEL"},
    ],
)
def test_a_time_that_no_calendar_shows_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(BadIntent) as error:
        times_of(event(**fields))
    assert (error.value.field or "").startswith("calendar.")
