"""What may be committed of a partition, whatever is finished in whatever order; and when records are missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.doors.kafka.partition import OffsetGap, OffsetTracker, find_gap


class HighestFinished(OffsetTracker):
    """The guard switched off: commits up to the highest record that is done."""

    def __init__(self) -> None:
        super().__init__()
        self._highest: int | None = None

    def finish(self, offset: int) -> None:
        super().finish(offset)
        self._highest = max(offset + 1, self._highest or 0)

    @property
    def resume(self) -> int | None:
        return self._highest if self._highest is not None else super().resume


@st.composite
def partitions(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Offsets as a partition has them, with holes, and the order in which they are finished."""
    offsets = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=30)))
    return offsets, draw(st.permutations(offsets))


def lost(marks: OffsetTracker, offsets: list[int], order: list[int], read: int, done: int) -> set[int]:
    """What nobody reads again when the process dies after so many are read and so many of them finished."""
    for offset in offsets[:read]:
        marks.take(offset)
    finished = [offset for offset in order if offset in offsets[:read]][:done]
    for offset in finished:
        marks.finish(offset)
    return {offset for offset in offsets if marks.resume is not None and offset < marks.resume} - set(finished)


@pytest.mark.req("S4-05")
@given(partitions(), st.integers(0, 30), st.integers(0, 30))
def test_nothing_below_what_is_committed_is_unfinished(
    partition: tuple[list[int], list[int]], read: int, done: int
) -> None:
    assert lost(OffsetTracker(), *partition, read, done) == set()


def test_control_committing_the_highest_loses_the_gap() -> None:
    assert lost(HighestFinished(), [0, 1, 2], [2, 0, 1], 3, 1) == {0, 1}


@given(partitions())
def test_everything_finished_is_everything_committed(partition: tuple[list[int], list[int]]) -> None:
    offsets, order = partition
    marks = OffsetTracker()
    assert [marks.expected, marks.resume] == [None, None]
    for offset in offsets:
        marks.take(offset)
    assert [marks.resume] == [None], "nothing is written down, so there is nothing to commit"
    for offset in order:
        assert (marks.resume or 0) <= offset
        marks.finish(offset)
    assert marks.resume == marks.expected == offsets[-1] + 1


@given(partitions(), st.data())
def test_it_never_goes_back(partition: tuple[list[int], list[int]], data: st.DataObject) -> None:
    offsets, _ = partition
    marks, seen, in_hand = OffsetTracker(), 0, []
    for offset in offsets:
        marks.take(offset)
        in_hand.append(offset)
        for done in data.draw(st.sets(st.sampled_from(in_hand))):
            in_hand.remove(done)
            marks.finish(done)
        assert (marks.resume or 0) >= seen
        seen = marks.resume or 0
        if not in_hand:
            assert seen == offset + 1
            break


def test_offsets_only_grow() -> None:
    marks = OffsetTracker()
    marks.take(7)
    with pytest.raises(ValueError, match="offset 7 came after 7"):
        marks.take(7)


@pytest.mark.parametrize(
    ("expected", "offset", "oldest", "gap"),
    [
        (None, 5, 5, None),
        (5, 5, 0, None),
        (5, 9, 9, OffsetGap(4)),
        (5, 12, 9, OffsetGap(4)),
        (5, 9, 5, None),
        (5, 9, 0, None),
        (5, 9, None, OffsetGap(None)),
        (5, 0, 0, OffsetGap(None)),
        (5, 3, None, OffsetGap(None)),
    ],
)
def test_missing_records_are_told_from_holes(
    expected: int | None, offset: int, oldest: int | None, gap: OffsetGap | None
) -> None:
    assert find_gap(expected, offset, oldest) == gap
