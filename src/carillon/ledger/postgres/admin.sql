-- Statements of administrators: dead letters, redrives, actions, API keys and the audit log. Filters left out are NULL.

-- name: failed
-- One snapshot for the page and the total, so that they agree.
WITH matching AS MATERIALIZED (
    SELECT d.notification_id, d.route_id, d.channel, d.final_attempt_count, d.failure_classification,
           d.failure_message, d.created_at, r.provider, r.last_error_at, n.tenant_id, n.user_id, n.notification_type,
           n.priority, n.accepted_at
    FROM dead_letters d
    JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
    JOIN records n ON n.notification_id = d.notification_id
    WHERE (:channel::text IS NULL OR d.channel = :channel)
      AND (:classification::text IS NULL OR d.failure_classification = :classification)
      AND (:provider::text IS NULL OR r.provider = :provider)
      AND (:notification_type::text IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id::text IS NULL OR n.tenant_id = :tenant_id)
      AND (:notification_id::text IS NULL OR d.notification_id = :notification_id)
      AND (:failed_after_ms::float8 IS NULL OR d.created_at >= to_timestamp(:failed_after_ms / 1000.0))
      AND (:failed_before_ms::float8 IS NULL OR d.created_at < to_timestamp(:failed_before_ms / 1000.0))
      AND (:notification_ids::text[] IS NULL OR d.notification_id = ANY (:notification_ids))
      AND (:letters::text[] IS NULL OR d.notification_id || chr(31) || d.route_id = ANY (:letters))
), page AS (
    SELECT *, (extract(epoch FROM created_at) * 1000000)::bigint AS place FROM matching
    WHERE :before_us::bigint IS NULL OR (created_at, notification_id, route_id)
        < (timestamptz 'epoch' + :before_us::float8 * interval '1 microsecond', :before_id::text, :before_route::text)
    ORDER BY created_at DESC, notification_id DESC, route_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (VALUES (1)) AS always (row)
LEFT JOIN page ON TRUE
ORDER BY page.created_at DESC, page.notification_id DESC, page.route_id DESC;

-- name: failed_counts
-- `now` bounds the redrive that follows: a route that fails again meanwhile is not redriven twice.
SELECT date_part('epoch', clock_timestamp()) * 1000 AS now, counted.*
FROM (VALUES (1)) AS always (row)
LEFT JOIN (
    SELECT d.channel, d.failure_classification AS classification, count(*) AS count,
           count(*) FILTER (WHERE (SELECT EXISTS (SELECT FROM suppressions)) AND EXISTS (
               SELECT FROM suppressions s
               WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
                 AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp()))) AS suppressed
    FROM dead_letters d
    JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
    JOIN records n ON n.notification_id = d.notification_id
    WHERE (:channel::text IS NULL OR d.channel = :channel)
      AND (:classification::text IS NULL OR d.failure_classification = :classification)
      AND (:provider::text IS NULL OR r.provider = :provider)
      AND (:notification_type::text IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id::text IS NULL OR n.tenant_id = :tenant_id)
      AND (:notification_id::text IS NULL OR d.notification_id = :notification_id)
      AND (:failed_after_ms::float8 IS NULL OR d.created_at >= to_timestamp(:failed_after_ms / 1000.0))
      AND (:failed_before_ms::float8 IS NULL OR d.created_at < to_timestamp(:failed_before_ms / 1000.0))
      AND (:notification_ids::text[] IS NULL OR d.notification_id = ANY (:notification_ids))
      AND (:letters::text[] IS NULL OR d.notification_id || chr(31) || d.route_id = ANY (:letters))
    GROUP BY d.channel, d.failure_classification
) AS counted ON TRUE
ORDER BY counted.count DESC, counted.channel, counted.classification;

-- name: redrive
-- Races: retention deletes the record meanwhile; two operators redrive at once.
--   KEY SHARE OF n          makes retention skip this record, or makes us skip what it is deleting.
--   UPDATE OF d SKIP LOCKED the second operator redrives other dead letters, and none twice.
--   provider_since = -1     tells the worker that an operator chose the provider: its breaker is not asked.
--   budget_since            the age of a route counts from its turn.
--   NOT EXISTS              a dead letter whose address is suppressed stays: its attempt would only be given up again.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), picked AS MATERIALIZED (
    SELECT d.notification_id, d.route_id, d.created_at
    FROM dead_letters d
    JOIN routes r ON r.notification_id = d.notification_id AND r.route_id = d.route_id
    JOIN records n ON n.notification_id = d.notification_id
    WHERE (:channel::text IS NULL OR d.channel = :channel)
      AND (:classification::text IS NULL OR d.failure_classification = :classification)
      AND (:provider::text IS NULL OR r.provider = :provider)
      AND (:notification_type::text IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id::text IS NULL OR n.tenant_id = :tenant_id)
      AND (:notification_id::text IS NULL OR d.notification_id = :notification_id)
      AND (:failed_after_ms::float8 IS NULL OR d.created_at >= to_timestamp(:failed_after_ms / 1000.0))
      AND (:failed_before_ms::float8 IS NULL OR d.created_at < to_timestamp(:failed_before_ms / 1000.0))
      AND (:notification_ids::text[] IS NULL OR d.notification_id = ANY (:notification_ids))
      AND (:letters::text[] IS NULL OR d.notification_id || chr(31) || d.route_id = ANY (:letters))
      AND NOT EXISTS (
          SELECT FROM suppressions s
          WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
            AND (s.expires_at IS NULL OR s.expires_at > (SELECT now FROM clock)))
    ORDER BY d.created_at, d.notification_id, d.route_id
    LIMIT :limit
    FOR UPDATE OF d SKIP LOCKED
    FOR KEY SHARE OF n SKIP LOCKED
), turns AS MATERIALIZED (
    SELECT notification_id, route_id,
           :done::int + row_number() OVER (ORDER BY created_at, notification_id, route_id) - 1 AS place
    FROM picked
), due AS MATERIALIZED (
    -- Without a rate the second operand is NULL, and every route is due now. No turn is after the last year, which nobody could show.
    SELECT turns.*, greatest(clock.now, CASE WHEN :rate::float8 IS NOT NULL THEN
        to_timestamp(least(:began_ms::float8 + place / :rate::float8 * 1000, :latest_ms::float8) / 1000.0) END) AS due_at
    FROM turns CROSS JOIN clock
), redriven AS (
    UPDATE routes r
    SET status = 'failed', attempt_count = 0, provider_since = CASE WHEN :forced::boolean THEN -1 ELSE 0 END,
        provider = coalesce(:new_provider::text, r.provider),
        lane = CASE WHEN r.lane = ANY (:unqueued::smallint[]) THEN :instead::smallint ELSE r.lane END,
        next_attempt_at = due.due_at, budget_since = due.due_at, dead_lettered_at = NULL, suppression_id = NULL,
        suppression_kind = NULL, suppressed_until = NULL, updated_at = clock.now
    FROM due CROSS JOIN clock
    WHERE r.notification_id = due.notification_id AND r.route_id = due.route_id AND r.status = 'dead_letter'
    RETURNING r.notification_id, r.route_id
)
SELECT notification_id, route_id FROM redriven;

-- name: redrive_forget
-- Runs in the transaction of the redrive, under the locks that `redrive` took.
DELETE FROM dead_letters d
USING unnest(:notification_id::text[], :route_id::text[]) AS redriven (notification_id, route_id)
WHERE d.notification_id = redriven.notification_id AND d.route_id = redriven.route_id;

-- name: mark_redriven
-- Runs in the transaction of the redrive. A route redriven again belongs to the newer action.
INSERT INTO redriven_routes (notification_id, route_id, action_id, delivered)
SELECT key.notification_id, key.route_id, :action_id::bigint, :delivered::boolean FROM unnest(:notification_id::text[],
    :route_id::text[]) AS key (notification_id, route_id)
ON CONFLICT (notification_id, route_id) DO UPDATE SET action_id = excluded.action_id, delivered = excluded.delivered;

-- name: note_action
-- Runs in the transaction of the action, if there is one: both are committed, or neither.
INSERT INTO admin_actions (at, actor, action, tenant_id, subject, reason, detail_json)
VALUES (clock_timestamp(), :actor, :action, :tenant_id, :subject, :reason, :detail_json)
RETURNING action_id;

-- name: update_action
-- Runs in the transaction of the next page.
UPDATE admin_actions SET detail_json = :detail_json WHERE action_id = :action_id;

-- name: actions
WITH matching AS MATERIALIZED (
    SELECT * FROM admin_actions a
    WHERE (:actor::text IS NULL OR a.actor = :actor)
      AND (:action::text IS NULL OR a.action = :action)
      AND (:subject::text IS NULL OR a.subject = :subject)
      AND (:tenant_id::text IS NULL OR a.tenant_id = :tenant_id)
      AND (:after_ms::float8 IS NULL OR a.at >= to_timestamp(:after_ms / 1000.0))
), page AS (
    SELECT * FROM matching WHERE :before_id::bigint IS NULL OR action_id < :before_id
    ORDER BY action_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (VALUES (1)) AS always (row)
LEFT JOIN page ON TRUE
ORDER BY page.action_id DESC;

-- name: redriven
-- `budget_since` is the turn of a route, also while it is in the future.
SELECT m.action_id, count(*) FILTER (WHERE r.status IN ('pending', 'failed')) AS waiting,
       count(*) FILTER (WHERE r.status = 'published') AS delivered,
       count(*) FILTER (WHERE r.status = 'dead_letter') AS failed_again,
       count(*) FILTER (WHERE r.status = 'skipped') AS skipped, max(r.budget_since) AS last_turn_at
FROM redriven_routes m
JOIN routes r ON r.notification_id = m.notification_id AND r.route_id = m.route_id
WHERE m.action_id = ANY (:action_ids::bigint[])
GROUP BY m.action_id;

-- name: action
SELECT * FROM admin_actions WHERE action_id = :action_id;

-- name: lock_action
-- Race: a redrive writes its next page while somebody stops it.
--   FOR UPDATE              the page is written first and stopped with the others, or it is not written.
SELECT detail_json FROM admin_actions WHERE action_id = :action_id FOR UPDATE;

-- name: stop_redrive
-- Race: a worker claims a route of the redrive at this moment.
--   taken                   the row of `due` stands for the route: this waits for a claim that is under way, and a claim passes over
--                           a row that is locked here.
--   claim_token, ticket     what a worker holds goes on: its call may be under way.
--   attempt_count = 0       what was attempted since is a retry, and no part of what waits for its turn.
--   delivered               what was delivered before is `stop_replay`'s.
--   count(*) FROM taken     as in `stop_routes`.
WITH taken AS (
    DELETE FROM due d USING redriven_routes m, routes r
    WHERE m.action_id = :action_id AND NOT m.delivered
      AND r.notification_id = m.notification_id AND r.route_id = m.route_id AND r.status = 'failed' AND r.attempt_count = 0
      AND d.lane = r.lane AND d.provider = r.provider AND d.grp = r.grp AND d.due_at = r.next_attempt_at AND d.ticket = r.ticket
    RETURNING d.ticket
)
UPDATE routes r
SET status = 'dead_letter', dead_lettered_at = clock_timestamp(), next_attempt_at = NULL, turn = NULL, ticket = NULL,
    updated_at = clock_timestamp(),
    attempt_count = (SELECT count(*) FROM attempts a WHERE a.notification_id = r.notification_id AND a.route_id = r.route_id)
FROM redriven_routes m
WHERE m.action_id = :action_id AND NOT m.delivered AND r.notification_id = m.notification_id AND r.route_id = m.route_id
  AND r.status = 'failed' AND r.attempt_count = 0 AND r.claim_token IS NULL
  AND (SELECT count(*) FROM taken) IS NOT NULL AND (r.ticket IS NULL OR r.ticket IN (SELECT ticket FROM taken))
RETURNING r.notification_id, r.route_id;

-- name: stop_redrive_bury
-- Runs in the transaction of `stop_redrive`. The last error is still the reason.
INSERT INTO dead_letters (
    notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
    failure_message, recovery_hint, created_at)
SELECT r.notification_id, r.route_id, r.channel, r.recipient_ref, r.attempt_count, r.max_attempts,
       coalesce(r.last_error_classification, 'stopped'), coalesce(r.last_error_message, 'the redrive was stopped'),
       :recovery_hint, r.dead_lettered_at
FROM unnest(:notification_id::text[], :route_id::text[]) AS stopped (notification_id, route_id)
JOIN routes r ON r.notification_id = stopped.notification_id AND r.route_id = stopped.route_id
ON CONFLICT (notification_id, route_id) DO NOTHING;

-- name: stop_redrive_forget
-- Runs in the transaction of `stop_redrive`: these routes are no longer part of the redrive.
DELETE FROM redriven_routes m
USING unnest(:notification_id::text[], :route_id::text[]) AS stopped (notification_id, route_id)
WHERE m.notification_id = stopped.notification_id AND m.route_id = stopped.route_id;

-- name: recent_outcomes
-- Ids grow with time, so the primary key finds the newest attempts in a table of any size; the newest successes are among
-- the routes that ended last.
WITH ended AS MATERIALIZED (
    SELECT * FROM routes WHERE next_attempt_at IS NULL ORDER BY updated_at DESC LIMIT :limit
), recent AS MATERIALIZED (
    SELECT * FROM (
        (SELECT notification_id, route_id, attempt_id, provider, outcome, classification, error, started_at, duration_ms
         FROM attempts ORDER BY notification_id DESC, attempt_id DESC LIMIT :limit)
        UNION ALL
        SELECT notification_id, route_id, finished_by, provider, 'sent', NULL, NULL,
               published_at - took_ms * interval '1 millisecond', took_ms
        FROM ended WHERE finished_by IS NOT NULL
    ) AS newest
    ORDER BY started_at DESC, attempt_id DESC LIMIT :limit
)
SELECT r.channel, a.provider, a.outcome, a.classification, a.error, a.started_at, a.duration_ms
FROM recent a
JOIN routes r ON r.notification_id = a.notification_id AND r.route_id = a.route_id
JOIN records n ON n.notification_id = a.notification_id
WHERE :tenant_id::text IS NULL OR n.tenant_id = :tenant_id
ORDER BY a.started_at, a.attempt_id;

-- name: write_audit
-- Race: copies of one message end on several workers at once.
--   audit_key UNIQUE        the second insert finds the first one's row and writes nothing.
INSERT INTO audit_logs (audit_key, trace_id, user_id, notification_type, template_id, status, metadata, created_at)
SELECT row.*, clock_timestamp()
FROM unnest(:audit_key::text[], :trace_id::text[], :user_id::text[], :notification_type::text[], :template_id::text[],
    :status::text[], :metadata::jsonb[]) AS row
ON CONFLICT (audit_key) DO NOTHING;

-- name: prune_audit
-- Race: two processes prune; each deletes rows that the other has not locked.
DELETE FROM audit_logs WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM audit_logs
    WHERE created_at < clock_timestamp() - :older_than_seconds::float8 * interval '1 second'
    ORDER BY created_at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1 AS pruned;

-- name: api_key
SELECT * FROM api_keys WHERE key_id = :key_id;

-- name: api_keys
SELECT * FROM api_keys ORDER BY created_at DESC, key_id;

-- name: lock_api_keys
-- Race: two operators each make the second key of one name at the same moment.
--   SHARE ROW EXCLUSIVE     the second counts after the first has committed; looking keys up goes on meanwhile.
LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE;

-- name: add_api_key
INSERT INTO api_keys (key_id, secret_hash, tenant_id, role, name, created_at, expires_at)
SELECT :key_id, :secret_hash, :tenant_id, :role, :name::text, clock_timestamp(),
    clock_timestamp() + :lives_seconds::double precision * interval '1 second'
WHERE (
    SELECT count(*) FROM api_keys
    WHERE name = :name AND tenant_id IS NOT DISTINCT FROM :tenant_id::text AND revoked_at IS NULL
      AND (expires_at IS NULL OR expires_at > clock_timestamp())
) < :most::bigint
RETURNING *;

-- name: revoke_api_key
-- Race: two operators take the same key back.
--   coalesce                the first time stays; the row's lock makes the second see it.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE key_id = :key_id RETURNING *;

-- name: touch_api_key
-- Race: every process of a fleet notes the same use.
--   last_used_at <          the second finds the first one's note and writes nothing.
UPDATE api_keys SET last_used_at = clock_timestamp()
WHERE key_id = :key_id
  AND (last_used_at IS NULL
       OR last_used_at < clock_timestamp() - :every_seconds::double precision * interval '1 second');
