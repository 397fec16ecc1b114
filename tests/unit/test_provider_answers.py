"""The table that says what a vendor's answers mean."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.providers.answers import MAX_TEXT, AnswerTable, Rule, brief

VENDOR = {
    "21610": Rule("refused", "opted_out", recipient_gone=True),
    "QUOTA": Rule("throttled", "quota", wait_seconds=60.0),
    "BUSY": Rule("unavailable", "busy", wait_seconds=5.0),
    "404": Rule("refused", "not_found"),
    "4xx": Rule("refused", "bad_request"),
    "503": Rule("unavailable", "maintenance"),
}


@pytest.mark.parametrize(
    ("codes", "status", "retry_after", "outcome"),
    [
        (["21610", "404"], 400, None, Refused("no", "opted_out", recipient_gone=True)),
        (["unheard", "21610"], 404, None, Refused("no", "opted_out", recipient_gone=True)),
        (["unheard"], 404, None, Refused("no", "not_found")),
        ([], 410, None, Refused("no", "bad_request")),
        ([], 503, 3.0, Unavailable("no", "maintenance", 3.0)),
        (["QUOTA"], 429, None, Throttled("no", 60.0)),
        (["QUOTA"], 429, 7.0, Throttled("no", 7.0)),
        (["QUOTA"], 429, 0.0, Throttled("no", 0.0)),
        (["BUSY"], 200, None, Unavailable("no", "busy", 5.0)),
    ],
)
def test_the_most_specific_line_is_taken(
    codes: list[str], status: int, retry_after: float | None, outcome: Outcome
) -> None:
    assert AnswerTable(VENDOR).judge(codes, status, "no", retry_after) == outcome


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (429, Throttled("no", 2.0)),
        (408, Unknown("no", "http_408")),
        *((status, Refused("no", f"http_{status}")) for status in (400, 401, 403, 404, 410, 413, 422, 499)),
        *((status, Unavailable("no", f"http_{status}", 2.0)) for status in (500, 502, 503, 504, 599)),
        # A vendor that reports a failure no table knows has not taken the message, whatever the status.
        *((status, Unavailable("no", f"http_{status}", 2.0)) for status in (200, 302, 304, 600)),
    ],
)
def test_without_a_line_http_decides(status: int, outcome: Outcome) -> None:
    assert AnswerTable({}).judge(["unheard"], status, "no", 2.0) == outcome


def test_the_operator_overrules_single_lines() -> None:
    table = AnswerTable(
        VENDOR,
        {
            "21610": Rule("refused", "asked_to_stop"),
            "5xx": Rule("refused", "gave_up"),
            "TAKEN": Rule("sent", "taken"),
            "*": Rule("unknown", "who_knows"),
        },
    )
    assert table.judge(["21610"], 400, "no", None) == Refused("no", "asked_to_stop")
    assert table.judge(["TAKEN"], 409, "no", None) == Sent()
    assert table.judge([], 500, "no", None) == Refused("no", "gave_up")
    assert table.judge([], 302, "no", None) == Unknown("no", "who_knows")
    # The vendor's more specific lines stay.
    assert table.judge([], 503, "no", None) == Unavailable("no", "maintenance")
    assert table.judge(["QUOTA"], 429, "no", None) == Throttled("no", 60.0)


@pytest.mark.parametrize("key", ["", " 429", "4XX", "6xx", "42x", "***", "099", "xxx"])
def test_a_line_that_could_never_be_found_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"^answers: "):
        AnswerTable(VENDOR, {key: Rule("refused", "x")})


@pytest.mark.parametrize("key", ["429", "5xx", "*", "21610", "UNREGISTERED", "messaging/unknown"])
def test_a_line_that_can_be_found_is_taken(key: str) -> None:
    codes = [] if key in {"429", "5xx", "*"} else [key]
    table = AnswerTable({}, {key: Rule("refused", "mine")})
    assert table.judge(codes, 429 if key == "429" else 500, "no", None) == Refused("no", "mine")


@pytest.mark.parametrize(
    "line",
    [
        {"outcome": "refused"},
        {"outcome": "lost", "classification": "x"},
        {"outcome": "refused", "classification": ""},
        {"outcome": "refused", "classification": "Has Blanks"},
        {"outcome": "refused", "classification": "x" * 65},
        {"outcome": "throttled", "classification": "x", "wait_seconds": -1},
        {"outcome": "unavailable", "classification": "x", "recipient_gone": True},
        {"outcome": "refused", "classification": "x", "nonsense": 1},
    ],
)
def test_a_wrong_line_is_named(line: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"at `\$\[\.\.\.\]|at `\$\["):
        msgspec.convert({"KEY": line}, dict[str, Rule])


def test_a_vendors_words_become_one_short_line() -> None:
    assert brief("  The\r\ntoken\x00 is\tbad ") == "The token is bad"
    assert brief("no device tok-1, tok-1 is gone", "tok-1", None, "") == "no device ***, *** is gone"
    judged = AnswerTable({}).judge([], 400, "x" * 10_000, None)
    assert judged == Refused("x" * MAX_TEXT, "http_400")


@given(st.text(), st.lists(st.text(max_size=10)), st.integers(0, 999))
def test_whatever_a_vendor_says_is_judged_and_printable(text: str, codes: list[str], status: int) -> None:
    outcome = AnswerTable(VENDOR).judge(codes, status, text, None)
    assert not isinstance(outcome, Sent)
    assert len(outcome.error) <= MAX_TEXT
    assert outcome.error.isprintable()
