-- Statements of places that are taken, of leases that ran out, and of tickets that are lost.

-- name: group_calls
-- How many claims hold a place of a group, as in `routes`.
SELECT (SELECT coalesce(sum(json_array_length(l.tickets)), 0) FROM leases l WHERE l.grp = :grp)
       + (SELECT count(*) FROM routes g WHERE g.grp = :grp AND g.grp < 0 AND g.claim_token IS NOT NULL AND g.turn IS NULL) AS calls;

-- name: lost_tickets
-- Open routes whose ticket stands neither in `due` nor in a lease: no claim would ever find them. A ticket and its place change in one
-- commit, so that a snapshot shows none unless something is wrong. Answers with the lost ones, and with the last that was looked at.
--   :after, :limit          a slice in the order of tickets: a pass over millions is many short statements.
WITH looked AS MATERIALIZED (
    SELECT r.ticket, r.lane, r.provider, r.grp, r.next_attempt_at FROM routes r
    WHERE r.ticket > :after AND r.next_attempt_at IS NOT NULL
    ORDER BY r.ticket LIMIT :limit
), judged AS (
    SELECT looked.ticket, looked.ticket = max(looked.ticket) OVER () AS last,
           looked.ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t) AND NOT EXISTS (
               SELECT 1 FROM due d
               WHERE d.lane = looked.lane AND d.provider = looked.provider AND d.grp = looked.grp
                 AND d.due_at = looked.next_attempt_at AND d.ticket = looked.ticket) AS lost
    FROM looked
)
SELECT ticket, lost FROM judged WHERE lost OR last ORDER BY ticket;

-- name: put_back
-- Routes whose ticket is lost wait for their time without one: the next claim gives them another.
--   NOT EXISTS              asked again: what the caller has seen may be old.
--   attempt_count           stays: nobody knows of a call.
UPDATE routes SET ticket = NULL, turn = NULL, updated_at = :now
WHERE ticket IN (SELECT value FROM json_each(:tickets)) AND next_attempt_at IS NOT NULL AND status IN ('pending', 'failed')
  AND ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t)
  AND NOT EXISTS (
      SELECT 1 FROM due d
      WHERE d.lane = routes.lane AND d.provider = routes.provider AND d.grp = routes.grp AND d.due_at = routes.next_attempt_at
        AND d.ticket = routes.ticket)
RETURNING notification_id, route_id;

-- name: expired_leases
-- only: PostgreSQL looks and resets in one statement
SELECT rowid AS place, notification_id, route_id, attempt_count >= max_attempts AS spent FROM routes
WHERE channel = 'sse' AND claim_token IS NOT NULL AND next_attempt_at <= :now
ORDER BY next_attempt_at
LIMIT :most;

-- name: reset_expired
-- Races: a claim, a late settlement, another process; all of them wait for the end of this transaction.
--   attempt_count           stays: the claim has counted the attempt, so a reset costs none.
--   budget_since            when it was due first: it is claimed again before later routes. One that its expiry had made due before
--                           stays due.
UPDATE routes
SET status = CASE WHEN :spent THEN 'dead_letter' ELSE 'failed' END,
    next_attempt_at = CASE WHEN :spent THEN NULL ELSE min(budget_since, next_attempt_at) END,
    dead_lettered_at = CASE WHEN :spent THEN :now END,
    last_error_classification = :error_classification, last_error_message = :error_message, last_error_at = :now,
    claim_token = NULL, lease_owner = NULL, updated_at = :now
WHERE rowid = :place;
