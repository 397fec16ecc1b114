"""Quiet hours: until when somebody is to be left alone."""

import datetime as dt
from zoneinfo import ZoneInfo

from carillon.domain.people import QuietHours


def quiet_until(hours: QuietHours, unix_seconds: float) -> float | None:
    """The end of the quiet window this moment lies in; None when nobody is disturbed."""
    if not hours.enabled:
        return None
    now = dt.datetime.fromtimestamp(unix_seconds, ZoneInfo(hours.timezone))
    begins, ends = dt.time.fromisoformat(hours.start_time), dt.time.fromisoformat(hours.end_time)
    at = now.time()
    if begins <= ends:
        days = 0 if begins <= at < ends else None
    elif at >= begins:
        days = 1
    else:
        days = 0 if at < ends else None
    if days is None:
        return None
    return dt.datetime.combine(now.date() + dt.timedelta(days=days), ends, now.tzinfo).timestamp()
