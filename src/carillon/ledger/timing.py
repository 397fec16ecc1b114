"""Rows of timing, the same for every engine: what a new notification replaces, and what stops one that waits."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from carillon.domain.notifications import Accepted, Enrolled, Enrolment
from carillon.domain.store import Ask, Row, Steps
from carillon.domain.timing import COLLAPSED, Stop
from carillon.ledger.chains import has_chain, is_held, laid
from carillon.ledger.digests import joined
from carillon.ledger.throttles import ThrottleCounts

Stopped = tuple[str, Stop]
"""The id of a notification, and what stops it."""


def has_timing(each: Enrolment) -> bool:
    """Whether storing it changes rows beside its own."""
    return each.collapse is not None or bool(each.digests) or bool(each.throttles) or has_chain(each) or is_held(each)


def stored(
    batch: Sequence[Enrolment], written: Collection[str], throttles: ThrottleCounts
) -> Steps[dict[str, tuple[str, ...]]]:
    """What the new notifications change beside their own rows; returns the ids that each replaces."""
    yield Ask("throttle_keep", each=throttles.kept(written))
    yield from joined(batch, written)
    yield from laid(batch, written)
    return (yield from replaced_by(batch, written))


def replaced_by(batch: Sequence[Enrolment], written: Collection[str]) -> Steps[dict[str, tuple[str, ...]]]:
    """Put the new notifications in the place of those that wait under their keys; returns the ids that each replaces.

    Of several under one key in one batch the last stays.
    """
    newest: dict[tuple[str, str, str], list[str]] = {}
    for each in batch:
        if each.collapse is not None and each.notification.notification_id in written:
            key = (each.notification.tenant_id or "", each.collapse.audience, each.collapse.key)
            newest.setdefault(key, []).append(each.notification.notification_id)
    names = ("tenant_id", "audience", "collapse_key")
    held = yield Ask(
        "collapse",
        each=[
            {**dict(zip(names, key, strict=True)), "notification_id": ids[-1]} for key, ids in sorted(newest.items())
        ],
    )
    before = {row["notification_id"]: row["before"] for row in held}
    gone = {
        ids[-1]: tuple(old for old in (*ids[:-1], before.get(ids[-1])) if old is not None and old != ids[-1])
        for ids in newest.values()
    }
    stops = [(old, Stop(COLLAPSED, new)) for new, olds in gone.items() for old in olds]
    yield from stopping(stops)
    yield Ask(
        "digest_replaced",
        each=[{"notification_id": old, "gate": stop.gate, "reason": stop.reason} for old, stop in stops],
    )
    return gone


def stopping(stops: Iterable[Stopped]) -> Steps[list[Row]]:
    """Stop notifications; returns the routes that no longer wait. A route in a provider's call is left alone."""
    rows = [
        {"notification_id": name, "stopped": stop.text(), "gate": stop.gate, "reason": stop.reason}
        for name, stop in sorted(stops, key=lambda one: one[0])
    ]
    yield Ask("stop", each=rows)
    return (yield Ask("stop_routes", each=rows))


def with_timing(
    answers: Mapping[int, Enrolled], gone: Mapping[str, tuple[str, ...]], throttles: ThrottleCounts
) -> dict[int, Enrolled]:
    """The answers by position, each with the notifications that it has replaced and the routes that are too many."""
    found: dict[int, Enrolled] = {}
    for place, one in answers.items():
        if isinstance(one, Accepted):
            replaced, over = gone.get(one.notification_id, ()), throttles.over.get(one.notification_id, one.gated)
            found[place] = replace(one, replaced=replaced, gated=over)
        else:
            found[place] = one
    return found
