"""Writes an invitation as a file of RFC 5545, which every calendar reads."""

import datetime as dt
import re
from collections.abc import Sequence

from carillon.domain.content.mail import Invitation
from carillon.domain.errors import BadIntent

FILENAME = "invite.ics"
_LONGEST_LINE = 75
"""In bytes, without the end of the line."""
_ESCAPED = str.maketrans({"\\": "\\\\", ";": "\\;", ",": "\\,", "\n": "\\n"})
_UNFIT = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
_ANSWERED = frozenset({"REQUEST", "CANCEL"})


def times_of(event: Invitation) -> tuple[dt.datetime, dt.datetime]:
    """Start and end in UTC; raises BadIntent if a calendar could not show them."""
    start, end = _moment(event.start, "calendar.start"), _moment(event.end, "calendar.end")
    if end <= start:
        raise BadIntent("VALIDATION_ERROR", "calendar.end: must be after calendar.start", field="calendar.end")
    if event.organizer is None and event.method in _ANSWERED:
        raise BadIntent(
            "VALIDATION_ERROR",
            f"calendar.organizer: {event.method} needs the address that answers go to",
            field="calendar.organizer",
        )
    return start, end


def _moment(text: str, field: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadIntent(
            "VALIDATION_ERROR", f"{field}: must be a time with its offset, such as 2030-01-01T08:00:00Z", field=field
        )
    try:
        return moment.astimezone(dt.UTC)
    except OverflowError:
        raise BadIntent("VALIDATION_ERROR", f"{field}: is out of range", field=field) from None


def write_invitation(event: Invitation, attendees: Sequence[str], made_up_uid: str, stamp: float) -> bytes:
    """The file; the same event, people and stamp always give the same bytes. `stamp` is in Unix seconds."""
    start, end = times_of(event)
    made = dt.datetime.fromtimestamp(int(stamp), dt.UTC)
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//Carillon//Invitations//EN",
        f"METHOD:{event.method}",
        "BEGIN:VEVENT",
        f"UID:{event.uid or made_up_uid}",
        f"DTSTAMP:{_utc(made)}",
        f"DTSTART:{_utc(start)}",
        f"DTEND:{_utc(end)}",
        f"SEQUENCE:{event.sequence}",
        f"STATUS:{'CANCELLED' if event.method == 'CANCEL' else 'CONFIRMED'}",
        f"SUMMARY:{_text(event.title)}",
    ]
    if event.location is not None:
        lines.append(f"LOCATION:{_text(event.location)}")
    if event.description is not None:
        lines.append(f"DESCRIPTION:{_text(event.description)}")
    if event.url is not None:
        lines.append(f"URL:{event.url}")
    if event.organizer is not None:
        lines.append(f"ORGANIZER:mailto:{event.organizer}")
        lines += [f"ATTENDEE;ROLE=REQ-PARTICIPANT;RSVP=TRUE:mailto:{address}" for address in attendees]
    if event.reminder_minutes is not None:
        alarm = ("ACTION:DISPLAY", f"DESCRIPTION:{_text(event.title)}", f"TRIGGER:-PT{event.reminder_minutes}M")
        lines += ["BEGIN:VALARM", *alarm, "END:VALARM"]
    lines += ["END:VEVENT", "END:VCALENDAR"]
    return b"".join(_folded(line) + b"\r\n" for line in lines)


def _utc(moment: dt.datetime) -> str:
    # In UTC a file needs no description of a time zone, and every calendar shows the reader's own time. Not strftime:
    # it writes the year 999 with three digits.
    return f"{moment.year:04}{moment.month:02}{moment.day:02}T{moment.hour:02}{moment.minute:02}{moment.second:02}Z"


def _text(text: str) -> str:
    return _UNFIT.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).translate(_ESCAPED)


def _folded(line: str) -> bytes:
    """A long line continues after a line break and a space; no character is cut in two."""
    rows: list[bytes] = []
    row = b""
    for char in line:
        piece = char.encode()
        if len(row) + len(piece) > _LONGEST_LINE:
            rows.append(row)
            row = b" "
        row += piece
    return b"\r\n".join([*rows, row])
