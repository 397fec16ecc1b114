"""The pure parts of the ledger: loading statements, cleaning texts, ordering batches, answering losers."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.claims import Claim, Want
from carillon.domain.notifications import Accepted, Conflict, Duplicate
from carillon.domain.suppressions import SuppressedRoute, SuppressionRef
from carillon.ledger.rows import (
    RECORD_FIELDS,
    SETTLEMENT_FIELDS,
    answer_for_loser,
    chosen,
    counted,
    record_values,
    rounds,
    route_rows,
    settlement_values,
    storable,
    storable_json,
    stories,
)
from carillon.ledger.sealing import Codec
from carillon.ledger.statements import Numbered, load, numbered, parse
from carillon.ledger.turns import ClaimTurns
from tests.support import dispatches
from tests.support.ledger_builders import bury, enrolment, fail_over, finish, notification, retry, route

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def claim(key: str, token: int = 1) -> Claim:
    return dispatches.claim(notification_id=key, token=token, provider="mailer", attempt=2)


def test_statements_are_found_by_name() -> None:
    assert parse("-- top\n-- name: a\n-- why\nSELECT 1;\n\n-- name: b\nSELECT 2;\n") == {
        "a": "-- why\nSELECT 1;",
        "b": "SELECT 2;",
    }
    with pytest.raises(ValueError, match="the same name"):
        parse("-- name: a\nx\n-- name: a\ny\n")


def test_both_dialects_load_every_file() -> None:
    for dialect in ("postgres", "sqlite"):
        assert {"enrol", "claim", "extend", "settle", "redrive", "prune", "search"} <= set(load(dialect))


@given(st.text(alphabet=st.characters(exclude_categories=[])))
def test_any_text_becomes_storable(text: str) -> None:
    stored = storable(text) or ""
    assert "\x00" not in stored
    assert len(stored) <= 2000
    stored.encode()


def test_storable_leaves_good_text_alone() -> None:
    assert storable("grüße 🎉") == "grüße 🎉"
    assert storable(None) is None


@given(ANYTHING)
def test_anything_becomes_strict_json(value: object) -> None:
    text = storable_json({"value": value})
    assert "\\u0000" not in text
    text.encode()
    json.loads(text, parse_constant=pytest.fail)


@given(st.lists(st.sampled_from("abcde"), max_size=12))
def test_rounds_keep_order_and_never_name_a_route_twice(keys: list[str]) -> None:
    settlements = [finish(claim(key, token)) for token, key in enumerate(keys)]
    split = rounds(settlements)
    assert sorted(place for places in split for place in places) == list(range(len(keys)))
    for places in split:
        named = [keys[place] for place in places]
        assert named == sorted(set(named))
    for key in set(keys):
        order = [place for places in split for place in places if keys[place] == key]
        assert order == sorted(order)


def test_repeated_wants_are_asked_in_rounds() -> None:
    shares = [Want(1, "a", 2), Want(2, "a", 3)]
    rest = [Want(1, "a", 9), Want(2, "a", 9)]
    turns = ClaimTurns()
    assert turns.rounds([*shares, *rest]) == [shares, rest]
    turns.finished([dispatches.claim(lane=2, provider="a")] * 9, 9)
    assert turns.rounds([*shares, *rest]) == [[shares[0], rest[1]], [rest[0], shares[1]]], (
        "a lane that filled a claim takes what is left, and each want is asked for once"
    )
    turns.finished([dispatches.claim(lane=2, provider="a")], 9)
    assert turns.rounds([*shares, *rest]) == [shares, rest]


def test_the_next_claim_begins_after_the_last_group_of_the_ring() -> None:
    turns, asked = ClaimTurns(), Want(1, "a", 2)
    for served, last in (([5, 9], 9), ([12, -3], -3), ([-3, 5], -3), ([5], 5)):
        turns.record([asked], [dispatches.claim(lane=1, provider="a", group=group) for group in served])
        assert turns.served(asked) == last
    turns.record([asked], [])
    assert turns.served(asked) == 5


def test_losers_learn_whether_they_asked_the_same() -> None:
    loser = notification(request_fingerprint="f")
    winner = {"notification_id": "w", "request_fingerprint": "f", "lane": 3, "expired": False, "suppressed_json": None}
    winner["gated_json"] = None
    assert answer_for_loser(loser, winner) == Duplicate("w", 3)
    assert answer_for_loser(loser, winner | {"request_fingerprint": "g"}) == Conflict("w")
    assert answer_for_loser(loser, winner | {"request_fingerprint": "g", "expired": 1}) == Conflict("w", expired=True)
    held = '[{"route_id":"r","channel":"sms","suppression":{"suppression_id":7,"kind":"invalid","until_ms":5}}]'
    stopped = (SuppressedRoute("r", "sms", SuppressionRef(7, "invalid", 5)),)
    assert answer_for_loser(loser, winner | {"suppressed_json": held}) == Duplicate("w", 3, stopped)
    own = winner | {"notification_id": loser.notification_id, "suppressed_json": held}
    assert answer_for_loser(loser, own) == Accepted(loser.notification_id, stopped)


def test_values_stand_under_their_names() -> None:
    given = enrolment(route("ann"), recipient_user_ids=["a"], scheduled_for_ms=5)
    record = dict(zip(RECORD_FIELDS, record_values(given.notification, Codec()), strict=True))
    assert (record["recipient_user_ids"], record["scheduled_for_ms"]) == ('["a"]', 5)
    assert record["payload_json"] == given.notification.payload_json
    assert route_rows(given, Codec())[0][-2:] == (5, None)


def test_settlements_say_what_their_verdict_means() -> None:
    def named(each: object) -> dict[str, object]:
        return dict(zip(SETTLEMENT_FIELDS, settlement_values(each, Codec()), strict=True))  # type: ignore[arg-type]

    one = claim("n")
    assert named(finish(one))["error_message"] is None
    assert named(finish(one))["delay"] is None
    assert named(retry(one, 5.0))["delay"] == 5.0
    assert named(retry(one))["error_classification"] == "timeout"
    assert named(fail_over(one, "other"))["next_provider"] == "other"
    assert named(bury(one))["error_message"] == "no such mailbox"
    assert named(msgspec.structs.replace(bury(one), note=None))["outcome"] is None


def test_filters_are_known_or_refused() -> None:
    assert chosen({"b": 1}, ("a", "b")) == {"a": None, "b": 1}
    with pytest.raises(ValueError, match="known are a, b"):
        chosen({"c": 1}, ("a", "b"))


def test_counts_are_summed_over_lanes() -> None:
    rows = [
        {"lane": 1, "status": "pending", "routes": 7, "due": 2, "leased": 1, "oldest_due_seconds": 4.0},
        {"lane": 2, "status": "failed", "routes": 1, "due": 1, "leased": 0, "oldest_due_seconds": 9.0},
        {"lane": 2, "status": "published", "routes": 7, "due": 0, "leased": 0, "oldest_due_seconds": None},
    ]
    counts = counted(rows)
    assert (counts["due"], counts["leased"], counts["oldest_due_seconds"]) == (3, 1, 9.0)
    assert counts["routes"]["published"] == 7
    assert counts["scheduled"] == 4
    assert counts["lanes"][1] == {"due": 2, "leased": 1, "oldest_due_seconds": 4.0}


def test_stories_without_routes_are_told_too() -> None:
    (story,) = stories([{"notification_id": "n"}], [], [{"notification_id": "other"}])
    assert (story.routes, story.attempts) == ([], [])


@pytest.mark.parametrize(
    ("text", "compiled"),
    [
        ("SELECT :b, :a, :b", Numbered("SELECT $1, $2, $1", ("b", "a"))),
        ("SELECT :a::text[], x::jsonb", Numbered("SELECT $1::text[], x::jsonb", ("a",))),
        ("SELECT ':a', 'it''s :a' -- :a\n, :c", Numbered("SELECT ':a', 'it''s :a' -- :a\n, $1", ("c",))),
        ('SELECT ":a", :c', Numbered('SELECT ":a", $1', ("c",))),
        ("SELECT $1, now() - $2", Numbered("SELECT $1, now() - $2", ())),
        ("SELECT a[1:2], j -> 'x' ->> 'y'", Numbered("SELECT a[1:2], j -> 'x' ->> 'y'", ())),
    ],
)
def test_names_become_numbers(text: str, compiled: Numbered) -> None:
    assert numbered(text) == compiled
