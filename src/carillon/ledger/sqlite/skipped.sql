-- Statements of redrives of what a gate skipped.

-- name: skipped
-- One page of what was skipped, the oldest first; `after` is where the page before ended. Filters left out are NULL.
--   IN (...)                the gates that may think better of it; what was replaced, cancelled, expired, told in a digest or
--                           reached on another channel stays as it is.
--   suppression_id          without one the address was erased while it was suppressed: that is never lifted.
--   stopped                 a notification that was cancelled or replaced since stays so.
SELECT r.notification_id, r.route_id, r.channel, r.recipient_ref, r.last_error_classification AS gate,
       r.skipped_at * 1000 AS skipped_us,
       n.tenant_id, n.category, n.scheduled_for AS scheduled_ms, n.expires_at AS expires_ms, r.goal, r.budget_since AS planned_ms,
       CASE WHEN r.goal IS NOT NULL THEN (
           SELECT max(o.step) FROM routes o WHERE o.notification_id = r.notification_id AND o.recipient_ref = r.recipient_ref
       ) END AS last_step,
       EXISTS (
           SELECT 1 FROM suppressions s
           WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
             AND (s.expires_at IS NULL OR s.expires_at > max(:now, coalesce(n.scheduled_for, 0)))) AS suppressed,
       -- if api
       (SELECT json_object('channels', json(p.channels_json), 'categories', json(p.categories_json))
        FROM preferences p
        WHERE n.category IS NOT NULL AND p.tenant_id = coalesce(n.tenant_id, '')
          AND p.user_id = CASE WHEN r.recipient_ref LIKE 'user:%' THEN substr(r.recipient_ref, 6)
                               ELSE substr(r.recipient_ref, 1, instr(r.recipient_ref, ':')) || r.address END) AS wishes_json
       -- else
       NULL AS wishes_json
       -- end
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.status = 'skipped' AND r.last_error_classification IN ('suppressed', 'category', 'throttle')
  AND (r.last_error_classification <> 'suppressed' OR r.suppression_id IS NOT NULL) AND n.stopped IS NULL
  AND (:gate IS NULL OR r.last_error_classification = :gate)
  AND (:channel IS NULL OR r.channel = :channel)
  AND (:tenant_id IS NULL OR coalesce(n.tenant_id, '') = :tenant_id)
  AND (:user_id IS NULL OR r.recipient_ref = 'user:' || :user_id)
  AND (:notification_type IS NULL OR n.notification_type = :notification_type)
  AND (:notification_ids IS NULL OR r.notification_id IN (SELECT value FROM json_each(:notification_ids)))
  AND (:skipped_after_ms IS NULL OR r.skipped_at >= :skipped_after_ms)
  AND (:skipped_before_ms IS NULL OR r.skipped_at < :skipped_before_ms)
  AND (:after_us IS NULL OR (r.skipped_at, r.notification_id, r.route_id) > (:after_us / 1000, :after_id, :after_route))
ORDER BY r.skipped_at, r.notification_id, r.route_id
LIMIT :limit;

-- name: redrive_skipped
-- Runs in the transaction of `skipped`.
--   attempt_count           a fresh budget, as of a dead letter.
--   last_error_...          stay: a redrive that is stopped leaves the route skipped by the gate that skipped it.
--   planned_ms              a route whose own time is still to come waits for it; what expires before is due when it expires.
--   step                    the place in the chain of its person, where several of its channels go again.
UPDATE routes
SET status = 'pending', attempt_count = 0, provider_since = 0, skipped_at = NULL,
    lane = CASE WHEN lane IN (SELECT value FROM json_each(:unqueued)) THEN :instead ELSE lane END,
    next_attempt_at = CAST(round(:due_ms) AS INTEGER), budget_since = CAST(round(:planned_ms) AS INTEGER), turn = NULL,
    step = coalesce(:step, step), updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id AND status = 'skipped'
RETURNING notification_id, route_id;

-- name: ledger_now
SELECT :now AS now_ms;

-- name: unskip_stop
-- Runs in the transaction of `stop_redrive`.
UPDATE routes
SET status = 'skipped', skipped_at = :now, next_attempt_at = NULL, turn = NULL, updated_at = :now
FROM redriven_routes m
WHERE m.action_id = :action_id AND routes.notification_id = m.notification_id AND routes.route_id = m.route_id
  AND routes.status = 'pending' AND routes.attempt_count = 0 AND routes.claim_token IS NULL
  AND (routes.ticket IS NULL OR routes.ticket NOT IN (SELECT t.value FROM leases l, json_each(l.tickets) t))
  AND routes.last_error_classification IN ('suppressed', 'category', 'throttle')
RETURNING notification_id, route_id;
