"""Why nobody can miss some conditions: what the page of mutants says of those that survive everything."""

from collections.abc import Mapping

from tests.simulation.mutant_texts import Mutant

_TOKEN = "the token alone names the route; the key finds its row without a search"
_TICKET = "the ticket alone names the row; the key finds it without a search"
_ENDED = "whatever ends a route takes its token and its ticket, the statement itself or a trigger"
_DUE = "what has ended has no time, by a constraint, and no ticket; the condition lets an index be used"
_COST = "saves work: what it lets through is refused or found empty by the next look"
_PLACES = "a claim in a row of a group with a cap is never in the turns: the condition lets an index be used"
_SUPPRESSIONS = "asks once whether there are suppressions at all, which saves a look for each route"
_FENCE = "a fence where no place is free: another process that asks at that moment asks once more"
_CALLER = "the caller takes its own from the answer"
_LOCKS = "locks more than it changes: others wait a moment longer"
_AGAIN = "the update behind it asks again"
_NO_LEASE = "the claim of a live route names no lease"
_CHANGED = "PostgreSQL does not delete what the same statement has changed; which comes first it does not promise"
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
    "enrol: nth <= free": _FENCE,
    "enrol: (SELECT EXISTS (SELECT FROM suppressions))": _SUPPRESSIONS,
    "postgres enrol: lease_owner IS NOT NULL 2": _CALLER,
    "winners: n.notification_id = ANY ($1::text[])": _CALLER,
    "winners: n.idempotency_key = lost.idempotency_key": _CALLER,
    "postgres winners: r.status = 'skipped' 1": "only what is skipped names a suppression",
    "postgres claim_enrolled: r.notification_id = ANY ($1::text[]) 1": _LOCKS,
    "postgres claim_enrolled: r.status = 'pending' 1": "what was tried has counted an attempt, or has no owner",
    "claim_enrolled: r.notification_id = ticketed.notification_id": _TOKEN,
    "claim_enrolled: r.route_id = ticketed.route_id": _TOKEN,
    "claim_enrolled: l.lease_id = held.lease_id": "no other lease holds one of these tickets",
    "queue_unclaimed: r.next_attempt_at IS NOT NULL": _DUE,
    "queue_unclaimed: r.ticket IS NULL": _AGAIN,
    "postgres queue_unclaimed: r.claim_token IS NULL 1": _AGAIN,
    "postgres claim: r.next_attempt_at IS NOT NULL 2": "a comparison with nothing is not true either",
    "claim: r.next_attempt_at IS NOT NULL": _DUE,
    "claim: r.status IN ('pending', 'failed')": _ENDED,
    "claim: r.grp < 0": _PLACES,
    "claim: r.turn IS NULL": _PLACES,
    "claim: nth <= free": _FENCE,
    "claim: places.free IS NOT NULL": "the fence of a group without a cap is asked for by nobody",
    "claim: (SELECT rows FROM lacking) > 0": _COST,
    "claim: (EXISTS (SELECT FROM ripe) OR EXISTS (SELECT FROM lapsed))": "a caller that got nothing asks a second time",
    "claim: due_at IS NOT NULL": "the row that a walk begins with has no time, and no comparison with nothing is true",
    "claim: WHEN r.goal IS NOT NULL": "without a goal the sentence is empty, too: it saves a look",
    "extend: r.notification_id = held.notification_id": _TOKEN,
    "extend: r.route_id = held.route_id": _TOKEN,
    "extend: r.status IN ('pending', 'failed')": _ENDED,
    "extend: ticketed": _NO_LEASE,
    "extend: held.ticketed": _NO_LEASE,
    "extend: NOT held.ticketed": "a claim under a ticket has no token in its row",
    "lost_tickets: r.next_attempt_at IS NOT NULL": _DUE,
    "lost_tickets: d.lane = looked.lane": _LOST,
    "lost_tickets: d.provider = looked.provider": _LOST,
    "lost_tickets: d.grp = looked.grp": _LOST,
    "lost_tickets: d.due_at = looked.next_attempt_at": _LOST,
    "lost_tickets: lost": _CALLER,
    "put_back: d.lane = r.lane": _LOST,
    "put_back: d.provider = r.provider": _LOST,
    "put_back: d.grp = r.grp": _LOST,
    "put_back: d.due_at = r.next_attempt_at": _LOST,
    "put_back: r.next_attempt_at IS NOT NULL": _DUE,
    "put_back: r.status IN ('pending', 'failed')": _ENDED,
    "settle_finished: l.lease_id = ANY ($7::bigint[] || $8::bigint[])": _LOCKS,
    "settle_finished: (lease_id IN (SELECT unnest($7::bigint[]))) IS TRUE": _CHANGED,
    "settle_finished: r.ctid = given.place": "a hint that saves the index: the token alone names the route",
    "settle_finished: r.status IN ('pending', 'failed')": _ENDED,
    "settle: l.lease_id = ANY ($20::bigint[] || $21::bigint[])": _LOCKS,
    "settle: (lease_id IN (SELECT unnest($20::bigint[]))) IS TRUE": _CHANGED,
    "settle: a.notification_id = judged.notification_id": _TOKEN,
    "postgres settle: r.notification_id = judged.notification_id 2": _TOKEN,
    "postgres settle: r.route_id = judged.route_id 2": _TOKEN,
    "settle: settled_by = 'adopted'": "what was applied has its answer one line above",
}
"""By statement and condition."""
WHY_STARTS: Mapping[str, str] = {
    "claimable: ": _COST,
    "claim_enrolled: l.tickets && ": _LOCKS,
}


def why(mutant: Mutant) -> str:
    """The reason that fits best; the page says where there is none."""
    name = f"{mutant.statement}: {mutant.condition}"
    start = next((reason for start, reason in WHY_STARTS.items() if name.startswith(start)), UNKNOWN)
    return WHY.get(f"{mutant.engine} {name} {mutant.nth}", WHY.get(f"{mutant.engine} {name}", WHY.get(name, start)))
