"""A reader's tail: entries may arrive in any order and leave in the order of the log, once, without a gap."""

from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.streams import Bounds, Entry, Tail, log_of, person_of, place


def entry(seq: int) -> Entry:
    return Entry("ada", seq, f"n-{seq}", "job.new", 2, 0, "{}")


class Model:
    """A log with holes and a reader who looks things up in it."""

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.log: list[Entry] = []
        self.written: list[int] = []

    def append(self, *, hole: bool) -> Entry:
        made = entry((self.log[-1].seq if self.log else 0) + (2 if hole else 1))
        self.log.append(made)
        return made

    def look_up(self, limit: int = 3) -> None:
        told, last = self.tail.told, self.tail.last
        self.tail.looked_up([each for each in self.log if each.seq > last][:limit], told)

    def write(self) -> None:
        entries = self.tail.take()
        self.written += [each.seq for each in entries]
        if entries:
            self.tail.wrote(entries[-1].seq)

    def finish(self) -> None:
        self.write()
        while self.tail.behind:
            self.look_up()
            self.write()


Step = st.sampled_from(["offer", "offer-hole", "grow", "silent", "look", "write", "repeat"])


@given(st.lists(Step, max_size=60), st.integers(0, 5))
def test_everything_leaves_in_order_and_once(steps: list[str], start: int) -> None:
    model = Model(Tail(limit=1000))
    for _ in range(start):
        model.append(hole=False)
    model.tail.begin(start)
    for step in steps:
        match step:
            case "offer" | "offer-hole":
                model.tail.offer(model.append(hole=step == "offer-hole"))
            case "grow":
                model.tail.grown(model.append(hole=False).seq)
            case "silent":
                # Appended elsewhere, and nobody says so until the next word.
                model.append(hole=False)
            case "look" if model.tail.behind:
                model.look_up()
            case "write":
                model.write()
            case "repeat" if model.log:
                model.tail.offer(model.log[len(model.log) // 2])
            case _:
                pass
    if model.log:
        model.tail.grown(model.log[-1].seq)
    model.finish()
    assert model.written == [each.seq for each in model.log if each.seq > start]
    assert model.tail.cursor == max([start, *model.written])


def test_nothing_is_taken_before_the_place_is_known() -> None:
    tail = Tail(limit=10)
    tail.offer(entry(1))
    assert not tail.behind
    assert tail.take() == []
    tail.begin(0)
    assert tail.behind


def test_one_too_many_is_an_overflow() -> None:
    tail = Tail(limit=2)
    tail.begin(0)
    overflows = []
    for seq in (1, 2, 3):
        tail.offer(entry(seq))
        overflows.append(tail.overflowed)
    assert overflows == [False, False, True]
    assert [each.seq for each in tail.take()] == [1, 2]


def test_what_was_told_of_and_is_gone_is_not_looked_for_for_ever() -> None:
    tail = Tail(limit=2)
    tail.begin(0)
    tail.grown(5)
    tail.looked_up([], 5)
    assert not tail.behind
    tail.grown(6)
    tail.grown(7)
    tail.looked_up([], 6)
    assert tail.behind


def test_where_a_reader_begins() -> None:
    empty, full = Bounds(), Bounds(oldest=5, newest=9)
    assert place(empty, None) == (0, None)
    assert place(empty, 0) == (0, None)
    assert place(full, None) == (9, None)
    assert place(Bounds(oldest=5, newest=9, unsettled=7), None) == (6, None)
    assert place(full, 7) == (7, None)
    assert place(full, 9) == (9, None)
    assert place(full, 4) == (4, None)
    assert place(full, 3) == (4, 3)
    assert place(full, 10) == (4, 0)
    assert place(empty, 10) == (0, 0)


def test_two_tenants_people_have_two_logs() -> None:
    assert len({log_of(None, "sam"), log_of("blue", "sam"), log_of("red", "sam")}) == 3
    assert person_of(log_of("blue", "sam")) == ("blue", "sam")
    assert person_of(log_of(None, "blue/sam")) == (None, "blue/sam")
