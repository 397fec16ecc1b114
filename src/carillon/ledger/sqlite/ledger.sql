-- Statements of acceptance and delivery. Every transaction here begins with BEGIN IMMEDIATE: one writer at a time is the
-- answer to every race between two of them, and what remains is said at each statement.

-- name: clock
-- only: PostgreSQL's statements read its clock themselves
-- Milliseconds; read once in a transaction, after the lock was won, so that waiting for it shortens no lease.
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER);

-- name: enrol
-- Races: two doors with one key, and our own repeat after a COMMIT whose answer was lost.
--   ON CONFLICT DO NOTHING  the first writer of a key or an id wins; a changed-rows count of 0 tells the second.
INSERT INTO records (
    notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json, idempotency_key,
    request_fingerprint, request_id, trace_id, occurred_at, accepted_at, updated_at, idempotency_expires_at,
    origin, tenant_id, user_id, priority, is_bulk, metadata_json, scheduled_for, sent_by, expires_at, category)
VALUES (
    :notification_id, :notification_type, :producer, :audience_kind, :recipient_user_ids, :payload_json,
    :idempotency_key, :request_fingerprint, :request_id, :trace_id, :occurred_at_ms, :now, :now,
    :now + CAST(:idempotency_ttl_seconds * 1000 AS INTEGER),
    :origin, :tenant_id, :user_id, :priority, :is_bulk, :metadata_json, :scheduled_for_ms, :sent_by, :expires_at_ms,
    :category)
ON CONFLICT DO NOTHING;

-- name: enrol_route
-- only: PostgreSQL lays routes in the same statement
--   ticket                  what is due now gets a ticket and stands in `due`; a schedule gets one when its time has come. Routes of
--                           live streams have none: their turns and leases are in their rows, see claim_live.sql.
--   held_by                 a route whose address is suppressed when it is due is enrolled as skipped, and keeps by
--                           what. Of a tenant's own suppression and everybody's, the one that holds longer counts.
INSERT INTO routes (
    notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at, resolved_locale,
    last_error_classification, last_error_message, last_error_at, created_at, updated_at, skipped_at, address,
    lane, provider, policy, budget_since, message_json, suppression_id, suppression_kind, suppressed_until, grp,
    turn, ticket)
SELECT :notification_id, :route_id, :channel, :recipient_ref,
       CASE WHEN skipped THEN 'skipped' ELSE 'pending' END,
       :max_attempts,
       CASE WHEN NOT skipped THEN coalesce(:scheduled_for_ms, :now) END,
       :resolved_locale,
       CASE WHEN gone THEN 'suppressed' ELSE :skipped_by END,
       CASE WHEN gone THEN 'the address is suppressed' ELSE :skipped_because END,
       CASE WHEN skipped THEN :now END,
       :now, :now,
       CASE WHEN skipped THEN :now END,
       :address, :lane, :provider, :policy, coalesce(:scheduled_for_ms, :now), :message_json,
       suppression_id,
       (SELECT s.kind FROM suppressions s WHERE s.suppression_id = held_by.suppression_id),
       (SELECT s.expires_at FROM suppressions s WHERE s.suppression_id = held_by.suppression_id),
       :grp, CASE WHEN :channel = 'sse' AND NOT skipped AND :scheduled_for_ms IS NULL THEN :grp END,
       CASE WHEN :channel <> 'sse' AND NOT skipped AND :scheduled_for_ms IS NULL THEN :ticket END
FROM (
    SELECT suppression_id, suppression_id IS NOT NULL AS gone,
           suppression_id IS NOT NULL OR :skipped_because IS NOT NULL AS skipped
    FROM (
        SELECT CASE WHEN :skipped_because IS NULL THEN (
            SELECT s.suppression_id FROM suppressions s
            WHERE s.channel = :channel AND s.address = :address AND s.tenant_id IN ('', :tenant_id)
              AND (s.expires_at IS NULL OR s.expires_at > max(:now, coalesce(:scheduled_for_ms, :now)))
            ORDER BY s.expires_at IS NULL DESC, s.expires_at DESC, s.tenant_id DESC
            LIMIT 1
        ) END AS suppression_id
    )
) AS held_by;

-- name: last_route
-- only: PostgreSQL answers with the skipped routes in the same statement
SELECT coalesce(max(rowid), 0) FROM routes;

-- name: enrol_suppressed
-- only: PostgreSQL answers with the skipped routes in the same statement
-- The skipped ones among the routes of this transaction: asked once for all, where RETURNING would cost every route.
--   EXISTS                  most ledgers have no suppressions, and then no route is read.
SELECT r.notification_id, r.route_id, r.channel, r.suppression_id, r.suppression_kind AS kind,
       r.suppressed_until AS until_ms
FROM routes r
WHERE EXISTS (SELECT 1 FROM suppressions) AND r.rowid > :last_route AND r.suppression_id IS NOT NULL
ORDER BY r.notification_id, r.route_id;

-- name: winners
--   claimed_at              what a worker has had was skipped later: its story says so.
SELECT n.notification_id, n.producer, n.idempotency_key, n.request_fingerprint,
       coalesce(n.idempotency_expires_at <= :now, 0) AS expired,
       coalesce((SELECT r.lane FROM routes r WHERE r.notification_id = n.notification_id ORDER BY r.route_id LIMIT 1),
                n.priority) AS lane,
       (SELECT json_group_array(json_object(
                   'route_id', r.route_id, 'channel', r.channel, 'suppression', json_object(
                       'suppression_id', r.suppression_id, 'kind', r.suppression_kind,
                       'until_ms', r.suppressed_until)))
        FROM routes r
        WHERE r.notification_id = n.notification_id AND r.status = 'skipped' AND r.suppression_id IS NOT NULL
       ) AS suppressed_json,
       (SELECT json_group_array(json_object('route_id', r.route_id, 'channel', r.channel,
                   'gate', r.last_error_classification, 'because', r.last_error_message))
        FROM routes r
        WHERE r.notification_id = n.notification_id AND r.status = 'skipped' AND r.claimed_at IS NULL
          AND (r.last_error_classification IN ('category', 'throttle')
               OR (r.last_error_classification = 'suppressed' AND r.suppression_id IS NULL))
       ) AS gated_json
FROM records n
WHERE n.notification_id = :notification_id OR (n.producer = :producer AND n.idempotency_key = :idempotency_key)
ORDER BY n.notification_id = :notification_id DESC
LIMIT 1;

-- name: keep_malformed
-- Race: the same stream entry read twice, by a restart or by two replicas; the first row stays.
INSERT INTO malformed_intents (
    stream_entry_id, notification_type, producer, idempotency_key, failure_code, failure_message, raw_fields, recorded_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (stream_entry_id) DO NOTHING;

-- name: claim_tokens
-- only: PostgreSQL has a sequence
UPDATE claim_tokens SET last = last + ?1 RETURNING last;

-- name: extend
-- Race: a worker that was suspended renews a route that another worker holds by now.
--   ticket                  only the holder of the current one may extend the lease.
--   status                  a route that a late success has finished has no lease to extend.
UPDATE leases SET expires_at = :lease_until
WHERE lease_id = :lease AND EXISTS (
    SELECT 1 FROM routes
    WHERE notification_id = :notification_id AND route_id = :route_id AND ticket = :token AND status IN ('pending', 'failed'));

-- name: extend_live
-- only: PostgreSQL extends both in one statement
--   claim_token             only the holder of the current token may extend the lease.
--   turn                    a lease that ran out and stands in the turns, not claimed yet, goes back among the leases.
UPDATE routes
SET next_attempt_at = :lease_until, turn = NULL, updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id
  AND claim_token = :token
  AND status IN ('pending', 'failed');

-- name: settle_judge
-- only: PostgreSQL judges and changes in one statement
-- Races: the lease ran out and another worker has the route, or finished it.
--   status                  a terminal route stays as it is.
--   ticket, claim_token     a stale failure changes nothing.
--   finish                  a late success is adopted while the route is open, because that message did go out.
SELECT CASE
           WHEN r.status NOT IN ('pending', 'failed') THEN 'stale'
           WHEN r.ticket = :token OR r.claim_token = :token THEN 'applied'
           WHEN :verdict = 'finish' THEN 'adopted'
           ELSE 'stale'
       END
FROM routes r
WHERE r.notification_id = :notification_id AND r.route_id = :route_id;

-- name: settle
-- Runs only for what was judged applied or adopted, in the same transaction.
--   attempt_count           a claim under a ticket did not count its attempt: the settlement does, or the end of the lease.
--   ticket                  an adopted success leaves another's ticket: the trigger of `routes` takes the route out of `due`.
UPDATE routes
SET status = CASE :verdict
        WHEN 'finish' THEN 'published' WHEN 'bury' THEN 'dead_letter' WHEN 'skip' THEN 'skipped'
        WHEN 'defer' THEN status ELSE 'failed' END,
    attempt_count = CASE WHEN :verdict NOT IN ('defer', 'skip') THEN attempt_count + (
                             ticket IS :token OR coalesce(ticket IN (SELECT t.value FROM leases l, json_each(l.tickets) t), 0))
                         WHEN ticket IS :token THEN attempt_count ELSE max(attempt_count - 1, 0) END,
    next_attempt_at = :now + CAST(round(:delay * 1000) AS INTEGER),
    provider = coalesce(:next_provider, provider),
    grp = coalesce(:grp, grp),
    provider_since = CASE WHEN :verdict = 'fail_over' THEN attempt_count + (ticket IS :token)
        WHEN :verdict = 'defer' AND :next_provider IS NOT NULL THEN attempt_count ELSE provider_since END,
    provider_message_id = coalesce(:provider_message_id, provider_message_id),
    last_error_classification = coalesce(:error_classification, last_error_classification),
    last_error_message = coalesce(:error_message, last_error_message),
    last_error_at = CASE WHEN :error_message IS NULL THEN last_error_at ELSE :now END,
    published_at = CASE WHEN :verdict = 'finish' THEN :now END,
    dead_lettered_at = CASE WHEN :verdict = 'bury' THEN :now END,
    skipped_at = CASE WHEN :verdict = 'skip' THEN :now END,
    suppression_id = json_extract(:suppression_json, '$.suppression_id'),
    suppression_kind = json_extract(:suppression_json, '$.kind'),
    suppressed_until = json_extract(:suppression_json, '$.until_ms'),
    settled_by = :settled,
    claimed_at = CASE WHEN ticket = :token THEN :now ELSE claimed_at END,
    ticket = CASE WHEN ticket <> :token THEN ticket END,
    claim_token = NULL,
    lease_owner = NULL,
    updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id;

-- name: settle_note
-- only: PostgreSQL writes the attempt in the same statement
-- Race: the same settlement comes again after a COMMIT whose answer was lost.
--   ON CONFLICT             the claim's token is the attempt's id: a repeat writes no second row.
--   finished_by             the same for a repeat of `settle_finished`, whose attempt is told by the route.
INSERT INTO attempts (
    attempt_id, notification_id, route_id, attempt, provider, outcome, classification, error, provider_message_id,
    started_at, duration_ms, verdict, delay_ms, settled)
SELECT :token, :notification_id, :route_id, :attempt, :provider, :outcome, :classification, :error,
       :provider_message_id, :now - CAST(round(:duration_ms) AS INTEGER), :duration_ms, :verdict, :delay * 1000,
       :settled
WHERE NOT EXISTS (
    SELECT 1 FROM routes WHERE notification_id = :notification_id AND route_id = :route_id AND finished_by = :token)
ON CONFLICT (attempt_id) DO NOTHING;

-- name: settle_answered
-- only: PostgreSQL looks in the same statement
-- A repeat gets the answer of the first.
SELECT settled FROM attempts WHERE attempt_id = :token AND verdict = :verdict
UNION ALL
SELECT settled_by FROM routes
WHERE notification_id = :notification_id AND route_id = :route_id AND finished_by = :token AND :verdict = 'finish';

-- name: settle_bury
-- only: PostgreSQL writes the dead letter in the same statement
INSERT INTO dead_letters (
    notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
    failure_message, recovery_hint, created_at)
SELECT notification_id, route_id, channel, recipient_ref, attempt_count, max_attempts, :error_classification,
       :error_message, :recovery_hint, :now
FROM routes
WHERE notification_id = :notification_id AND route_id = :route_id
ON CONFLICT (notification_id, route_id) DO NOTHING;

-- name: settle_alert
-- only: PostgreSQL writes the alert in the same statement
-- Runs with the burial it is about, in the same transaction; a repeat is judged stale and does not come here.
INSERT INTO outbox (topic, notification_id, route_id, created_at, next_attempt_at, final_attempt_count, failure_message)
SELECT 'NotificationFailed', notification_id, route_id, :now, :now, attempt_count, :error_message
FROM routes
WHERE notification_id = :notification_id AND route_id = :route_id AND lane >= :alert_from;
