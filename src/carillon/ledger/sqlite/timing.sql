-- Statements of what stops a notification that waits: a newer one in its place, or its producer.

-- name: collapse
-- Runs in the transaction of `enrol`, for notifications that it has written: one writer at a time.
INSERT INTO collapses (tenant_id, audience, collapse_key, notification_id, updated_at)
VALUES (:tenant_id, :audience, :collapse_key, :notification_id, :now)
ON CONFLICT (tenant_id, audience, collapse_key) DO UPDATE
SET before = collapses.notification_id, notification_id = excluded.notification_id, updated_at = excluded.updated_at
RETURNING notification_id, before;

-- name: stop
-- Race: a worker holds a route of it. The mark stays on the record: when that call fails, the next claim finds it and
-- skips the route.
--   stopped IS NULL         what stopped it first stays.
UPDATE records SET stopped = :stopped, updated_at = :now WHERE notification_id = :notification_id AND stopped IS NULL;

-- name: stop_routes
--   claim_token, leases     a claimed route may be on its way and stays; a lease that ran out does not protect it,
--                           and its attempt counts.
UPDATE routes
SET status = 'skipped', skipped_at = :now, next_attempt_at = NULL, claim_token = NULL, lease_owner = NULL,
    attempt_count = attempt_count + coalesce(ticket IN (SELECT t.value FROM leases l, json_each(l.tickets) t), 0),
    last_error_classification = :gate, last_error_message = :reason, last_error_at = :now, updated_at = :now
WHERE notification_id = :notification_id AND status IN ('pending', 'failed')
  AND (claim_token IS NULL OR next_attempt_at <= :now)
  AND (ticket IS NULL OR ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t WHERE l.expires_at > :now))
RETURNING notification_id, route_id;

-- name: prune_collapses
-- A key that nobody used for so long has nothing that waits.
DELETE FROM collapses WHERE rowid IN (
    SELECT c.rowid FROM collapses c
    WHERE c.updated_at < :now - CAST(:older_than_seconds * 1000 AS INTEGER)
      AND NOT EXISTS (SELECT 1 FROM records n WHERE n.notification_id = c.notification_id)
    ORDER BY c.updated_at LIMIT :limit)
RETURNING 1 AS pruned;

-- name: still_waiting
-- Notifications with something that waits or that a worker holds, in the order of their ids; filters left out are NULL.
--   closed_at               an event of a digest waits until the digest closes.
--   stopped IS NULL         an event that was left out before is not counted again.
--   routed                  a throttle gathers what is too much for one person, while others of the same notification wait.
SELECT n.notification_id, sum(still.waits) AS waiting, sum(NOT still.waits) AS held, sum(still.gathered) AS gathered,
       EXISTS (SELECT 1 FROM routes o WHERE o.notification_id = n.notification_id AND o.next_attempt_at IS NOT NULL) AS routed
FROM (
    SELECT r.notification_id, (r.claim_token IS NULL OR r.next_attempt_at <= :now)
               AND (r.ticket IS NULL OR r.ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t WHERE l.expires_at > :now)) AS waits,
           0 AS gathered, r.channel
    FROM routes r WHERE r.next_attempt_at IS NOT NULL
    UNION ALL
    SELECT m.notification_id, 1, 1, d.channels
    FROM digest_members m JOIN digests d ON d.digest_id = m.digest_id WHERE d.closed_at IS NULL
) AS still
JOIN records n ON n.notification_id = still.notification_id
WHERE (NOT still.gathered OR n.stopped IS NULL) AND n.notification_id > :after
  AND (:notification_id IS NULL OR n.notification_id = :notification_id)
  AND (:idempotency_key IS NULL OR n.idempotency_key = :idempotency_key)
  AND (:collapse_key IS NULL OR EXISTS (
          SELECT 1 FROM collapses c
          WHERE c.notification_id = n.notification_id AND c.collapse_key = :collapse_key
            AND c.tenant_id = coalesce(n.tenant_id, '')))
  AND (:tenant_id IS NULL OR coalesce(n.tenant_id, '') = :tenant_id)
  AND (:user_id IS NULL OR n.user_id = :user_id)
  AND (:notification_type IS NULL OR n.notification_type = :notification_type)
  AND (:origin IS NULL OR n.origin = :origin)
  AND (:channel IS NULL OR still.channel = :channel
       OR (still.gathered AND instr(',' || still.channel || ',', ',' || :channel || ',') > 0))
  AND (:accepted_after_ms IS NULL OR n.accepted_at >= :accepted_after_ms)
  AND (:accepted_before_ms IS NULL OR n.accepted_at < :accepted_before_ms)
GROUP BY n.notification_id
ORDER BY n.notification_id
LIMIT :limit;

-- name: change_time
UPDATE records
SET scheduled_for = coalesce(:scheduled_for_ms, scheduled_for), expires_at = coalesce(:expires_at_ms, expires_at),
    updated_at = :now
WHERE notification_id IN (SELECT value FROM json_each(:notification_ids)) AND stopped IS NULL;

-- name: change_due
--   claim_token, leases     a claimed route may be on its way and stays.
--   attempt_count           a route that was tried waits for its retry, not for its schedule.
--   turn                    a route that stood in the turns waits for its new time.
--   behind                  the later channels of a chain keep their distance from the first, as `budget_since` has it: expiry cuts the other.
--   max                     what was due at its old expiry, to be skipped, is due at its own time again.
--   latest_ms               no time is after the last year, which nobody could show: the whole chain goes so much earlier.
UPDATE routes
SET next_attempt_at = min(
        coalesce(first.moved_to,
                 max(next_attempt_at, budget_since, coalesce(not_before, 0), CASE WHEN coalesce(step, 0) = 0 THEN first.scheduled_for ELSE 0 END)),
        coalesce(first.expires_at, 9000000000000000)),
    budget_since = coalesce(first.moved_to, budget_since), turn = NULL,
    not_before = CASE WHEN :scheduled_for_ms IS NULL THEN not_before END, updated_at = :now
FROM (
    SELECT w.*, min(:scheduled_for_ms, :latest_ms - max(w.behind) OVER (PARTITION BY w.notification_id)) + w.behind AS moved_to
    FROM (
        SELECT w.rowid AS place, w.notification_id, n.expires_at, coalesce(n.scheduled_for, 0) AS scheduled_for,
               CASE WHEN w.step IS NULL THEN 0 ELSE w.budget_since
                   - min(w.budget_since) OVER (PARTITION BY w.notification_id, w.recipient_ref) END AS behind
        FROM routes w JOIN records n ON n.notification_id = w.notification_id
        WHERE w.notification_id IN (SELECT value FROM json_each(:notification_ids)) AND w.next_attempt_at IS NOT NULL
    ) AS w
) AS first
WHERE routes.rowid = first.place AND status = 'pending' AND attempt_count = 0 AND claim_token IS NULL
  AND (ticket IS NULL OR ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t))
RETURNING notification_id, route_id;
