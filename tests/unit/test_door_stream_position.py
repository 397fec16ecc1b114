"""The judgement on a stream's position against a model that remembers every entry there ever was."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.doors.redis_stream.offset import (
    START,
    EntryGap,
    EntryId,
    Position,
    StreamState,
    id_text,
    judge,
    parse_id,
)
from tests.support.examples import examples


class Model:
    """A stream, its reader, and what really was lost."""

    def __init__(self) -> None:
        self.entries: list[EntryId] = []
        self.added = 0
        self.last = START
        self.position = Position(START, 0)
        self.lost = 0
        self.told = 0
        self.arriving = True

    def add(self, many: int) -> None:
        for _ in range(many):
            self.last = (self.last[0] + 1, 0)
            self.entries.append(self.last)
            self.added += 1

    def trim(self, many: int) -> None:
        gone, self.entries = self.entries[:many], self.entries[many:]
        self.lost += sum(entry > self.position.offset for entry in gone)

    def read(self, many: int) -> None:
        """As the door does: look first, then take what is there."""
        self.look()
        found = [entry for entry in self.entries if entry > self.position.offset][:many]
        if found:
            read = self.position.read
            self.position = Position(found[-1], None if read is None else read + len(found))

    def restart(self, _: int) -> None:
        self.arriving = True

    def look(self) -> None:
        first = self.entries[0] if self.entries else None
        seen = StreamState(self.added, len(self.entries), first, self.last)
        self.position, gap = judge(self.position, seen, arriving=self.arriving)
        self.arriving = False
        if gap is not None:
            assert gap.lost is not None
            self.told += gap.lost


STEPS: dict[str, Callable[[Model, int], None]] = {
    "add": Model.add,
    "trim": Model.trim,
    "read": Model.read,
    "restart": Model.restart,
}


@examples(500)
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(1, 5)), max_size=40))
def test_what_is_told_as_lost_is_what_was_lost(steps: list[tuple[str, int]]) -> None:
    model = Model()
    for name, many in steps:
        STEPS[name](model, many)
        assert model.told <= model.lost, "never more than really were"
    model.read(10**9)
    model.look()
    assert model.told == model.lost, "once everything is read, all of it is told"


HERE: EntryId = (5, 0)


@pytest.mark.parametrize(
    ("position", "look", "after", "gap"),
    [
        pytest.param(Position(START, 0), None, Position(START, 0), None, id="no stream yet"),
        pytest.param(Position(HERE, 5), None, Position(START, 0), EntryGap(None), id="deleted"),
        pytest.param(
            Position(HERE, 5), StreamState(1, 1, (1, 0), (1, 0)), Position(START, 0), EntryGap(None), id="lower ids"
        ),
        pytest.param(
            Position(HERE, 5), StreamState(3, 3, (6, 0), (8, 0)), Position(START, 0), EntryGap(None), id="a new stream"
        ),
        pytest.param(
            Position(HERE, 5),
            StreamState(4, 4, (4, 0), (8, 0)),
            Position(START, 0),
            EntryGap(None),
            id="new, around us",
        ),
        pytest.param(
            Position(HERE, 5), StreamState(9, 9, (6, 0), (14, 0)), Position(START, 0), EntryGap(None), id="new and long"
        ),
        pytest.param(
            Position(HERE, None), StreamState(9, 3, (7, 0), (9, 0)), Position(HERE, 6), EntryGap(None), id="unsure"
        ),
        pytest.param(
            Position(HERE, None), StreamState(5, 0, None, HERE), Position(HERE, 5), None, id="uncounted, at the end"
        ),
        pytest.param(
            Position(HERE, None), StreamState(9, 9, (1, 0), (9, 0)), Position(HERE, None), None, id="uncounted"
        ),
        pytest.param(
            Position(HERE, 5), StreamState(None, 2, (7, 0), (9, 0)), Position(HERE, 5), None, id="before Redis 7"
        ),
        pytest.param(
            Position(START, 0), StreamState(9, 3, (7, 0), (9, 0)), Position(START, 6), EntryGap(6), id="never read"
        ),
    ],
)
def test_arriving(position: Position, look: StreamState | None, after: Position, gap: EntryGap | None) -> None:
    assert judge(position, look, arriving=True) == (after, gap)


def test_unsure_is_asked_only_once() -> None:
    look = StreamState(9, 3, (7, 0), (9, 0))
    assert judge(Position(HERE, None), look, arriving=False) == (Position(HERE, 6), None)


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("0-0", START),
        ("18446744073709551615-18446744073709551615", (2**64 - 1, 2**64 - 1)),
        ("5", (5, 0)),
        ("", None),
        ("$", None),
        ("5-", None),
        ("-5", None),
        ("5-6-7", None),
        ("\u0665-\u0660", None),
        ("5-0\n", None),
    ],
)
def test_ids(text: str, entry: EntryId | None) -> None:
    assert parse_id(text) == entry
    assert entry is None or parse_id(id_text(entry)) == entry
