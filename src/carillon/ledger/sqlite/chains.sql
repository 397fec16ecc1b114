-- Statements of chains, in which a channel waits for those before it, and of delivery reports that do not come. One writer
-- at a time is the answer to every race.

-- name: chain_open
-- Runs in the transaction of `enrol`: what it has not skipped.
SELECT r.notification_id, r.route_id FROM routes r
WHERE r.notification_id IN (SELECT value FROM json_each(:notification_ids)) AND r.status = 'pending';

-- name: chain_lay
-- Runs in the transaction of `enrol`, for routes that it has written.
--   moved                   a route before it is skipped: it takes that one's time.
--   budget_since            when its time comes, also where it is due before, at its expiry: a later expiry gives that time back.
UPDATE routes
SET goal = :goal, step = :step, not_before = :not_before_ms,
    next_attempt_at = CASE WHEN :moved THEN coalesce(:due_ms, :now) ELSE next_attempt_at END,
    budget_since = CASE WHEN :step IS NULL THEN budget_since
                        ELSE coalesce(:planned_ms, CASE WHEN :moved THEN :now ELSE budget_since END) END
WHERE notification_id = :notification_id AND route_id = :route_id;

-- name: chain_reached
-- Skips what waits in chains whose goal another route has reached. It reads the goal from the rows: to run it again, or to
-- run it after a crash, changes nothing more, and every claim asks the same.
--   claim_token, leases     a claimed route may be on its way and stays: when that call fails, its next claim finds the goal reached. A
--                           lease that ran out does not protect it, and its attempt counts.
UPDATE routes
SET status = 'skipped', skipped_at = :now, next_attempt_at = NULL, claim_token = NULL, lease_owner = NULL, turn = NULL,
    attempt_count = attempt_count + coalesce(ticket IN (SELECT t.value FROM leases l, json_each(l.tickets) t), 0),
    last_error_classification = 'reached',
    last_error_message = 'another channel reached its goal: ' || due.goal || ' on ' || due.channel,
    last_error_at = :now, updated_at = :now
FROM (
    SELECT w.rowid AS place, w.goal, (
        SELECT e.channel FROM routes e
        WHERE e.notification_id = w.notification_id AND e.recipient_ref = w.recipient_ref AND e.route_id <> w.route_id
          AND CASE w.goal WHEN 'delivered' THEN e.delivered_at WHEN 'read' THEN e.opened_at ELSE e.clicked_at END IS NOT NULL
        ORDER BY e.step IS NULL, e.step LIMIT 1) AS channel
    FROM routes w
    WHERE w.notification_id IN (SELECT value FROM json_each(:notification_ids)) AND w.goal IS NOT NULL
      AND w.status IN ('pending', 'failed') AND (w.claim_token IS NULL OR w.next_attempt_at <= :now)
      AND (w.ticket IS NULL OR w.ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t WHERE l.expires_at > :now))
) AS due
WHERE routes.rowid = due.place AND due.channel IS NOT NULL
RETURNING notification_id, route_id, channel, last_error_message AS because;

-- name: chain_release
-- A route ended without having been sent: the next one of its person goes at once, and those behind it move up by as much.
-- It reads from the rows which route is next: to run it again changes nothing more.
--   ended                   the one just before it was neither sent nor waits: those it waited for have nothing left to try.
--   claimed_at              a route that a worker has had waits for its retry or for a breaker, not for the one before it.
--   not_before              what quiet hours hold stays held.
--   budget_since            distances are those of the plan, also where expiry has cut them.
--   turn                    it stands among what is scheduled, and the next claim puts it into the turns.
UPDATE routes
SET next_attempt_at = min(max(max(next_attempt_at, budget_since) - ended.ahead, coalesce(not_before, 0)), ended.expires_at),
    budget_since = max(max(next_attempt_at, budget_since) - ended.ahead, coalesce(not_before, 0)), turn = NULL, updated_at = :now
FROM (
    SELECT f.notification_id, f.recipient_ref, f.step, max(f.next_attempt_at, f.budget_since) - :now AS ahead,
           coalesce(n.expires_at, 9000000000000000) AS expires_at
    FROM routes f JOIN records n ON n.notification_id = f.notification_id
    WHERE f.notification_id IN (SELECT value FROM json_each(:notification_ids)) AND f.step IS NOT NULL
      AND f.status = 'pending' AND f.claimed_at IS NULL AND f.next_attempt_at > :now
      AND NOT EXISTS (
          SELECT 1 FROM routes o
          WHERE o.notification_id = f.notification_id AND o.recipient_ref = f.recipient_ref AND o.step < f.step
            AND o.status IN ('pending', 'failed'))
      AND (SELECT e.status IN ('dead_letter', 'skipped') FROM routes e
           WHERE e.notification_id = f.notification_id AND e.recipient_ref = f.recipient_ref AND e.step < f.step
           ORDER BY e.step DESC LIMIT 1)
) AS ended
WHERE routes.notification_id = ended.notification_id AND routes.recipient_ref = ended.recipient_ref
  AND routes.step >= ended.step AND routes.status = 'pending' AND routes.claimed_at IS NULL
RETURNING notification_id, route_id;

-- name: await_receipt
-- Runs in the transaction of the settlement: from now on the vendor has so long to report the delivery.
--   delivered_at            a report that came first is the end of it.
UPDATE routes SET receipt_due = :now + CAST(round(:seconds * 1000) AS INTEGER)
WHERE notification_id = :notification_id AND route_id = :route_id AND status = 'published' AND provider = :provider
  AND delivered_at IS NULL;

-- name: receipts_overdue
-- `sent` is false where the delivery was reported, or the route went on, meanwhile.
SELECT r.notification_id, r.route_id, r.channel, r.provider, r.provider_message_id,
       r.status = 'published' AND r.delivered_at IS NULL AS sent
FROM routes r
WHERE r.receipt_due IS NOT NULL AND r.receipt_due <= :now
ORDER BY r.receipt_due LIMIT :limit;

-- name: receipts_given_up
-- Race: the route was sent once more meanwhile, and waits for another report: that one is not over yet.
UPDATE routes SET receipt_due = NULL
WHERE notification_id = :notification_id AND route_id = :route_id AND receipt_due <= :now;

-- name: hasten_receipts
-- Runs in the transaction of `hasten`.
UPDATE routes SET receipt_due = receipt_due - CAST(round(:seconds * 1000) AS INTEGER) WHERE receipt_due IS NOT NULL;
