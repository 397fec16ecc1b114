"""The problem document."""

import datetime as dt
import json
import re

import pytest

from carillon.domain.errors import BadIntent
from carillon.web.problems import KINDS, Problem, document, from_bad_intent, rfc3339, rfc3339_ms, unavailable

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.mark.req("S2-10")
@pytest.mark.parametrize("code", KINDS)
def test_every_code_makes_a_whole_document(code: str) -> None:
    body = json.loads(document(Problem(code, "why"), instance="/x", trace_id="t1"))
    assert body["status"] == KINDS[code][0]
    assert body["title"] == KINDS[code][1]
    assert body["detail"] == "why"
    assert body["instance"] == "/x"
    assert body["type"].startswith("urn:carillon:problem:")
    error = body["error"]
    assert {"code", "message", "details", "timestamp", "traceId"} == set(error)
    assert (error["code"], error["message"], error["traceId"]) == (code, "why", "t1")
    assert TIME.fullmatch(error["timestamp"])


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("VALIDATION_ERROR", 400),
        ("CHANNEL_REQUIRED", 400),
        ("TEMPLATE_RENDER_ERROR", 400),
        ("SYNCHRONOUS_UNAVAILABLE", 400),
        ("UNKNOWN_CHANNEL", 400),
        ("RECIPIENT_UNRESOLVED", 422),
        ("CHANNEL_DISABLED", 422),
        ("TEMPLATE_NOT_FOUND", 404),
        ("IDEMPOTENCY_CONFLICT", 409),
        ("SOMETHING_NEW", 400),
    ],
)
def test_a_bad_intent_has_its_status(code: str, status: int) -> None:
    problem = from_bad_intent(BadIntent(code, "why", field="channel"))
    assert problem.status == status
    assert problem.details[0].field == "channel"


def test_unavailable_says_when_to_come_back() -> None:
    assert unavailable("later", 7).headers == {"Retry-After": "7"}


def test_further_members_stand_beside_the_standard_ones() -> None:
    body = json.loads(document(Problem("BATCH_REJECTED", "none", members={"results": [1]}), instance="/", trace_id="t"))
    assert body["results"] == [1]
    assert body["status"] == 422


@pytest.mark.req("G-14")
def test_times_are_utc_with_milliseconds() -> None:
    berlin = dt.timezone(dt.timedelta(hours=2))
    assert rfc3339(dt.datetime(2026, 5, 4, 3, 2, 1, 999_900, tzinfo=berlin)) == "2026-05-04T01:02:01.999Z"
    assert rfc3339_ms(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
