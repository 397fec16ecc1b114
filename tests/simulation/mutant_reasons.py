"""Why nobody can miss some conditions: what the page of mutants says of those that survive everything."""

from collections.abc import Mapping

from tests.simulation.mutant_texts import Mutant

_TOKEN = "the token alone names the route; the key finds its row without a search"
_TICKET = "the ticket alone names the row; the key finds it without a search"
_ENDED = "what has ended has neither token nor ticket: a trigger of `routes` takes them"
_DUE = (
    "an open route has a time and no other has one, by a constraint of the table; the condition lets an index be used"
)
_COST = "saves work: what it lets through is refused or found empty by the next look"
_PLACES = "a claim in a row of a group with a cap is never in the turns: the condition lets an index be used"
_SUPPRESSIONS = "asks once whether there are suppressions at all, which saves a look for each route"
_TYPES = "always true: it names parameters that the statement has without caps, too"
_LOST = "the ticket alone names the place in the queue; the rest lets an index be used"

UNKNOWN = "not explained yet"
WHY: Mapping[str, str] = {
    # SQLite
    "enrolled_ticket: ticket IS NOT NULL": "without a ticket nothing is found in `due`, and no lease has that number",
    "take_due: lane = :lane": _TICKET,
    "take_due: provider = :provider": _TICKET,
    "take_due: grp = :grp": _TICKET,
    "take_due: due_at = :due_at": _TICKET,
    "ticket_anew: next_attempt_at IS NOT NULL": _DUE,
    "lapse: next_attempt_at IS NOT NULL": _DUE,
    "lapse: status IN ('pending', 'failed')": _ENDED,
    "ripe: r.next_attempt_at IS NOT NULL": "a comparison with nothing is not true either",
    "queue_tickets: r.next_attempt_at IS NOT NULL": _ENDED,
    "claim_candidates: WHEN r.goal IS NOT NULL": "without a goal the sentence is empty, too: it saves a look",
    "claim_candidates: r.next_attempt_at IS NOT NULL": _DUE,
    "claim_candidates: r.status IN ('pending', 'failed')": _ENDED,
    "extend: notification_id = :notification_id": _TOKEN,
    "extend: route_id = :route_id": _TOKEN,
    "extend: status IN ('pending', 'failed')": _ENDED,
    "settle_finished: notification_id = :notification_id": _TOKEN,
    "settle_finished: route_id = :route_id": _TOKEN,
    "settle_finished: status IN ('pending', 'failed')": _ENDED,
    "settle_note: notification_id = :notification_id": _TOKEN,
    "settle_note: route_id = :route_id": _TOKEN,
    "settle_answered: notification_id = :notification_id": _TOKEN,
    "settle_answered: route_id = :route_id": _TOKEN,
    # PostgreSQL
    "enrol: r.grp < 0": _PLACES,
    "enrol: r.turn IS NULL": _PLACES,
    "enrol: nth <= free": "a fence where no place is free: the next claim of another process looks once more",
    "enrol: (SELECT EXISTS (SELECT FROM suppressions))": _SUPPRESSIONS,
    "claim: r.grp < 0": _PLACES,
    "claim: r.turn IS NULL": _PLACES,
    "claim: cardinality($14::text[]) = cardinality($15::bigint[])": _TYPES,
    "claim: nth <= free": "a fence where no place is free: the next claim of another process looks once more",
    "claim: places.free IS NOT NULL": _COST,
    "claim: (SELECT rows FROM lacking) > 0": _COST,
    "claim: (EXISTS (SELECT FROM ripe) OR EXISTS (SELECT FROM lapsed))": "the caller asks a second time anyway",
    "put_back: d.lane = r.lane": _LOST,
    "put_back: d.provider = r.provider": _LOST,
    "put_back: d.grp = r.grp": _LOST,
    "put_back: d.due_at = r.next_attempt_at": _LOST,
    "put_back: r.next_attempt_at IS NOT NULL": _DUE,
    "put_back: r.status IN ('pending', 'failed')": _ENDED,
}
"""By statement and condition."""
WHY_STARTS: Mapping[str, str] = {
    "claimable: ": _COST,
}


def why(mutant: Mutant) -> str:
    """The reason that fits best; the page says where there is none."""
    name = f"{mutant.statement}: {mutant.condition}"
    start = next((reason for start, reason in WHY_STARTS.items() if name.startswith(start)), UNKNOWN)
    return WHY.get(f"{mutant.engine} {name} {mutant.nth}", WHY.get(f"{mutant.engine} {name}", WHY.get(name, start)))
