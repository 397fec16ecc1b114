"""What must hold after every fault; the tests and their negative controls ask the same functions."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.support import tables
from tests.support.checker import Report
from tests.support.daemon import Daemon
from tests.support.ending import Ending, ended
from tests.support.process import Program
from tests.support.stand import Stand


class ViolationError(AssertionError):
    """A promise was broken; `promise` names the function that found out."""

    def __init__(self, promise: str, found: object) -> None:
        super().__init__(f"{promise}: {found}")
        self.promise = promise


def hold(promise: str, kept: bool, found: object) -> None:  # noqa: FBT001 - it reads as a sentence
    if not kept:
        raise ViolationError(promise, found)


def ends_in_time(program: Program, most_seconds: float, silent: Daemon | None = None) -> Ending:
    """Told to stop, it ends well and waits no longer; who is silent answers again only when that is known."""
    try:
        ending = ended(program, most_seconds)
    finally:
        if silent is not None:
            silent.resume()
    hold("ends_in_time", ending.code == 0 and ending.waited <= most_seconds, ending)
    return ending


async def nothing_lost(stand: Stand) -> Report:
    """Every accepted message is stored once, terminal, and really sent when it is called published."""
    report = await stand.report()
    hold("nothing_lost", report.sound, report)
    return report


async def nothing_settled_twice(stand: Stand) -> None:
    twice = await tables.read(stand.url, tables.SETTLED_TWICE)
    hold("nothing_settled_twice", not twice, twice[:5])


async def budgets_kept(stand: Stand) -> None:
    """One claim beyond the budget is what buries a crash loop; the vendor must never see it."""
    overdrawn = await tables.read(stand.url, tables.OVERDRAWN)
    hold("budgets_kept", not overdrawn, overdrawn[:5])


def repeats_bounded(report: Report, held: Mapping[str, int]) -> None:
    """A repeat carries the id of its route, and only what a fault met in flight is repeated, once for each fault."""
    beyond = {name: number for name, number in report.duplicates.items() if number > held.get(name, 0)}
    hold("repeats_bounded", not beyond, f"{beyond} beyond what was in flight")


async def nothing_leased(stand: Stand) -> None:
    claimed = await tables.number(stand.url, tables.CLAIMED)
    hold("nothing_leased", claimed == 0, f"{claimed} routes are still in a worker's hands")


async def all_published(stand: Stand) -> None:
    statuses = {row["status"]: row["n"] for row in await tables.read(stand.url, tables.STATUSES)}
    hold("all_published", statuses.keys() == {"published"}, statuses)


async def everything_holds(stand: Stand) -> Report:
    """The promises that no fault at all may touch."""
    report = await nothing_lost(stand)
    await nothing_settled_twice(stand)
    await budgets_kept(stand)
    await nothing_leased(stand)
    repeats_bounded(report, stand.held)
    return report


_OWNED = ("status", "attempt_count", "claim_token", "lease_owner", "last_error_message")


def zombie_changed_nothing(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """The new holder's row is as it was, whatever the old one had to say."""
    differing = {name: (before[name], after[name]) for name in _OWNED if before[name] != after[name]}
    hold("zombie_changed_nothing", not differing, differing)


def lease_untouched(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """The lease of the new holder ends when it would have ended."""
    ends = (before["next_attempt_at"], after["next_attempt_at"])
    hold("lease_untouched", ends[0] == ends[1], ends)


def late_success_closed(route: Mapping[str, Any], calls: int) -> None:
    """A success that came back late ends the matter: nobody sends again."""
    hold("late_success_closed", (route["status"], route["settled_by"]) == ("published", "adopted"), dict(route))
    hold("late_success_closed", calls == 2, f"{calls} calls")


def never_promised_while_down(answers: Sequence[Mapping[str, Any]]) -> None:
    """Without its ledger the program says so and when to come back; it never says yes."""
    wrong = [line for line in answers if line["status"] != 503 or not str(line["retry_after"] or "").isdigit()]
    hold("never_promised_while_down", bool(answers) and not wrong, wrong[:3])


def lease_renewed(first: Mapping[str, Any], last: Mapping[str, Any]) -> None:
    """The same claim, and a lease that ends later."""
    kept = first["claim_token"] == last["claim_token"] and last["next_attempt_at"] > first["next_attempt_at"]
    hold("lease_renewed", kept, (first["next_attempt_at"], last["next_attempt_at"]))


def no_attempt_burnt(calls: int, allowed: int) -> None:
    """While the vendor is down it gets what was under way when the breaker opened, and one call for each probe."""
    hold("no_attempt_burnt", calls <= allowed, f"{calls} calls, {allowed} allowed")


def waited_as_asked(stand: Stand, seconds: float) -> float:
    """Between two calls of one message lies at least what the vendor asked for; returns the shortest wait."""
    times: dict[str, list[int]] = {}
    for entry in stand.vendor.entries:
        times.setdefault(str(entry["id"]), []).append(entry["time_us"])
    waits = [(later - sooner) / 1e6 for each in times.values() for sooner, later in pairwise(each)]
    shortest = min(waits, default=0.0)
    hold("waited_as_asked", shortest >= seconds - 0.01, f"{shortest:.3f} s of {seconds} s")
    return shortest
