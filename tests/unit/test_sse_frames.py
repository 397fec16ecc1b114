"""What stands on the wire of a stream."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.streams import Entry
from carillon.live import wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.sampled_from([None, 2]))
def test_a_payload_is_an_object_on_one_line(payload: dict[str, object], indent: int | None) -> None:
    entry = Entry("ada", 7, "n-1", "job.new", 1, 1_700_000_000_123, json.dumps(payload, indent=indent))
    text = wire.notifications([entry]).decode()
    number, event, data, *rest = text.split("\n")
    assert (number, event, rest) == ("id: 7", "event: notification", ["", ""])
    told = json.loads(data.removeprefix("data: "))
    assert told == {
        "notification_id": "n-1",
        "event_type": "job.new",
        "priority": "HIGH",
        "event_timestamp": "2023-11-14T22:13:20.123Z",
        "payload": payload,
    }


@pytest.mark.parametrize(("rank", "word"), [(1, "HIGH"), (2, "MEDIUM"), (3, "LOW")])
def test_priorities_have_words(rank: int, word: str) -> None:
    assert wire.sse_notification(Entry("ada", 1, "n", "t", rank, 0, "{}")).priority == word


def test_the_small_frames() -> None:
    assert wire.connected(41, 3000) == b'event: connected\ndata: {"status":"connected"}\nretry: 3000\nid: 41\n\n'
    assert wire.heartbeat(0) == b'event: heartbeat\ndata: {"timestamp":"1970-01-01T00:00:00.000Z"}\n\n'
    assert wire.gap(3, 9) == b'event: gap\ndata: {"last_event_id":3,"oldest":9}\n\n'
    assert wire.closing("lifetime") == b'event: closing\ndata: {"reason":"lifetime"}\n\n'
