"""A blueprint's own words in the log, and whether its lines name people."""

import io
import json
from typing import Any

import msgspec
import pytest

from carillon.domain.claims import Settled
from carillon.domain.events import LeasesReset, RouteAttempted, Trouble
from carillon.upkeep.logs.lines import LogSink, log_observer

ATTEMPT = RouteAttempted(
    "n1", "job.new", "notifications", "user", "sse:user:ann", "sse", "sse", 1, "sent", "finish", 1.0, Settled.APPLIED
)


def said(event: Any, sentences: dict[str, str] | None = None, *, name_people: bool = False) -> dict[str, Any]:
    stream = io.StringIO()
    log_observer(LogSink(stream), sentences or {}, name_people=name_people)(event)
    (line,) = [json.loads(text) for text in stream.getvalue().splitlines()]
    return dict(line)


@pytest.mark.req("S4-25", "S4-26")
def test_a_blueprint_s_sentence_goes_before_ours() -> None:
    assert said(ATTEMPT)["message"] == "Sent sse through sse on attempt 1"
    assert said(ATTEMPT, {"finish": "delivered"})["message"] == "delivered"
    assert said(ATTEMPT, {"finish": "{provider}: {attempt}"})["message"] == "sse: 1"


@pytest.mark.parametrize("sentence", ["{nothing}", "{", "{attempt.x.y}", "{0}", "{attempt!z}"])
def test_a_sentence_that_asks_for_too_much_is_still_a_line(sentence: str) -> None:
    assert said(ATTEMPT, {"finish": sentence})["message"] == sentence


def test_people_are_named_only_where_a_blueprint_wants_it() -> None:
    ann = msgspec.structs.replace(ATTEMPT, user_id="ann")
    assert "user_id" not in said(ann)
    assert said(ann, name_people=True)["user_id"] == "ann"


@pytest.mark.req("S4-23", "S4-37", "S4-39")
def test_the_document_s_words_of_trouble() -> None:
    line = said(LeasesReset(count=3, failed=1))
    assert (line["message"], line["level"], line["count"]) == ("reset expired leases", "warning", 3)
    assert said(Trouble(where="claim", error="no"))["message"].startswith("claim failed")
    assert said(Trouble(where="lease reset", error="no"))["message"].startswith("lease reset failed")
