"""Times as operators write them."""

import datetime as dt

from carillon.web import Problem
from carillon.web.body import convert
from carillon.web.problems import Detail


def unix_ms(text: str, field: str) -> int:
    """Unix milliseconds of a time with an offset; a Problem names the field."""
    moment = convert(text, dt.datetime, prefix=field)
    if moment.tzinfo is None:
        raise Problem("VALIDATION_ERROR", f"{field} needs an offset from UTC", details=[Detail("no offset", field)])
    return round(moment.timestamp() * 1000)
