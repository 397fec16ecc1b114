"""A blueprint sse with exactly one guard switched off: `python -m tests.support.sse_mutant NAME serve …`."""

import sys
from collections.abc import Callable
from typing import Any

from carillon import cli
from carillon.domain import streams
from carillon.domain.outcomes import Outcome, Sent
from carillon.domain.streams import Bounds, Entry, Seat
from carillon.ledger.postgres import ledger as postgres
from carillon.ledger.sqlite import ledger as sqlite
from carillon.ledger.statements import load
from carillon.live import endpoints as streams_api
from carillon.live.attendance import Attendance
from carillon.live.hub import Hub
from carillon.live.relay import ReplicaRelay
from carillon.live.sse import SseProvider
from tests.support.mutant import nothing_is_paused, vars_of


def sent_when_appended() -> None:
    """Nobody waits for the word that it was written."""

    async def hasty(self: Any, dispatch: Any) -> Outcome:
        await self._placing.add(dispatch.claim)
        return Sent("?")

    vars_of(SseProvider, send=hasty)


def no_turns() -> None:
    """Delivers every claim at once."""

    async def everybody(self: Any, claims: Any) -> list[Any]:
        del self
        return sorted(claims, key=lambda claim: (claim.lane, claim.notification_id))

    vars_of(postgres.PostgresLedger, in_turn=everybody)


def turns_by_id() -> None:
    """Who goes first is judged by the id, whatever the claim goes by."""
    changes = (
        (" AND r.budget_since <= person.latest", ""),
        ("ORDER BY r.budget_since, r.notification_id", "ORDER BY r.notification_id"),
        ("(own.budget_since, own.notification_id) <", "(own.notification_id) <"),
        ("(missing.budget_since, missing.notification_id)", "(missing.notification_id)"),
        ("ORDER BY person.lane, own.budget_since,", "ORDER BY person.lane,"),
    )

    def loaded(dialect: str, parts: frozenset[str] | None = None) -> Any:
        statements = dict(load(dialect, parts))
        for clause, instead in changes:
            if clause not in statements["in_turn"]:
                raise RuntimeError(f"in_turn has no {clause!r} any more; mend the mutant")
            statements["in_turn"] = statements["in_turn"].replace(clause, instead)
        return statements

    vars(postgres)["load"] = loaded


def begins_at_the_end() -> None:
    """Who names no number hears nothing of what was appended and reached nobody."""

    def end(bounds: Bounds, resume: int | None) -> tuple[int, int | None]:
        return (bounds.newest, None) if resume is None else streams.place(bounds, resume)

    vars(streams_api)["place"] = end


def buffer_without_end() -> None:
    def keep(self: streams.Tail, entry: Entry) -> None:
        if entry.seq == self.last + 1 and self.last >= 0:
            self._kept.append(entry)
            self.last = entry.seq
        self.grown(entry.seq)

    vars_of(streams.Tail, offer=keep)


def dropped_when_full() -> None:
    """What does not fit is left out, as the document's origin does."""

    def drop(self: streams.Tail, entry: Entry) -> None:
        if self.last >= 0 and entry.seq > self.last:
            if len(self._kept) < self._limit:
                self._kept.append(entry)
            self.last = entry.seq
        self.told = self.last

    vars_of(streams.Tail, offer=drop)


def nobody_is_woken() -> None:
    async def sleep(_self: Attendance, _people: set[str]) -> None:
        return

    vars_of(Attendance, _wake=sleep)


def no_relay() -> None:
    vars_of(ReplicaRelay, announce=lambda _self, _entries: None)


def seats_without_end() -> None:
    begin = Hub.__init__

    def open_house(self: Hub, **given: Any) -> None:
        begin(self, **given | {"max_seats": sys.maxsize, "max_per_key": sys.maxsize})

    vars_of(Hub, __init__=open_house)


def tickets_without_end() -> None:
    def loaded(dialect: str, parts: frozenset[str] | None = None) -> Any:
        statements = dict(load(dialect, parts))
        if "AND NOT opened" not in statements["open_ticket"]:
            raise RuntimeError("open_ticket has no guard any more; mend the mutant")
        statements["open_ticket"] = statements["open_ticket"].replace("AND NOT opened", "")
        return statements

    for engine in (postgres, sqlite):
        vars(engine)["load"] = loaded


def everybody_hears_everything() -> None:
    def offer(self: Any, entries: Any) -> None:
        for entry in entries:
            seats: list[Seat] = [seat for held in self._seats.values() for seat in held]
            for seat in seats:
                seat.tail.offer(entry)
                seat.wake()

    vars_of(Hub, offer=offer)


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant
    for mutant in (
        sent_when_appended,
        begins_at_the_end,
        no_turns,
        turns_by_id,
        buffer_without_end,
        dropped_when_full,
        nobody_is_woken,
        no_relay,
        seats_without_end,
        tickets_without_end,
        everybody_hears_everything,
        nothing_is_paused,
    )
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
