-- Statements of vendors' callbacks. They run in one transaction, in this order; keys arrive sorted, so that two batches
-- lock common rows in the same order: first receipts, then routes, then suppressions.

-- name: receipts_write
-- Races: a vendor sends the same report twice at once, and our own repeat after a COMMIT whose answer was lost.
--   ON CONFLICT DO NOTHING  the first writer of a report wins; the second waits for its commit and learns that the
--                           report is known.
--   waiting                 the effect until it is computed; both are in the same commit.
INSERT INTO receipts (
    receipt_key, provider, kind, provider_message_id, idempotency_key, address, classification, reason, recipient_gone,
    occurred_at, received_at, effect)
SELECT receipt_key, provider, kind, provider_message_id, idempotency_key, address, classification, reason,
       recipient_gone, to_timestamp(occurred_at_ms / 1000.0), clock_timestamp(), 'waiting'
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::boolean[],
    $10::float8[]
) AS given (
    receipt_key, provider, kind, provider_message_id, idempotency_key, address, classification, reason, recipient_gone,
    occurred_at_ms)
ON CONFLICT (receipt_key) DO NOTHING
RETURNING receipt_key;

-- name: receipts_waiting
-- Race: two processes take waiting receipts.
--   SKIP LOCKED             each receipt is taken by one of them.
--   EXISTS                  only receipts whose message is known by now or whose time is over: many reports about
--                           unknown messages must not hide the few that can be applied.
SELECT w.receipt_key, w.provider, w.kind, w.provider_message_id, w.idempotency_key, w.address, w.classification,
       w.reason, w.recipient_gone, w.received_at < clock_timestamp() - $1::float8 * interval '1 second' AS expired
FROM receipts w
WHERE w.effect = 'waiting'
  AND (w.received_at < clock_timestamp() - $1::float8 * interval '1 second'
       OR EXISTS (
           SELECT FROM attempts_told a WHERE a.provider_message_id = w.provider_message_id AND a.provider = w.provider)
       OR EXISTS (
           SELECT FROM routes r
           WHERE r.notification_id = split_part(w.idempotency_key, '/', 1) AND r.claim_token IS NULL
             AND NOT EXISTS (SELECT FROM leases l WHERE r.ticket = ANY (l.tickets))))
ORDER BY w.received_at
LIMIT $2
FOR UPDATE SKIP LOCKED;

-- name: receipts_messages
-- Which route sent a message; a vendor that names a message twice means the later attempt.
SELECT named.place, sent.notification_id, sent.route_id
FROM unnest($1::int[], $2::text[], $3::text[]) AS named (place, provider, provider_message_id)
CROSS JOIN LATERAL (
    SELECT a.notification_id, a.route_id FROM attempts_told a
    WHERE a.provider_message_id = named.provider_message_id AND a.provider = named.provider
    ORDER BY a.attempt_id DESC
    LIMIT 1
) AS sent;

-- name: receipts_notifications
-- The route of a vendor that names only the notification: one that it sent, preferably one to this address.
SELECT named.place, meant.route_id
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[]) AS named (place, notification_id, provider, address)
CROSS JOIN LATERAL (
    SELECT r.route_id FROM routes r
    WHERE r.notification_id = named.notification_id
      AND (r.provider = named.provider OR EXISTS (
              SELECT FROM attempts a
              WHERE a.notification_id = r.notification_id AND a.route_id = r.route_id AND a.provider = named.provider))
    ORDER BY coalesce(lower(r.address) = lower(named.address), FALSE) DESC, r.route_id
    LIMIT 1
) AS meant;

-- name: receipts_routes
-- Races: another callback, a settlement, a claim of the same route at this moment.
--   FOR NO KEY UPDATE       the second one waits and reads the newest version; retention finds the row in use.
SELECT r.notification_id, r.route_id, r.channel, r.lane, r.policy, r.provider, r.provider_message_id, r.status,
       r.attempt_count, r.max_attempts, r.provider_since,
       r.claim_token IS NOT NULL OR EXISTS (SELECT FROM leases l WHERE r.ticket = ANY (l.tickets)) AS held, r.receipt,
       r.delivered_at IS NOT NULL AS delivered, r.address, n.tenant_id, n.user_id, r.goal,
       CASE WHEN r.channel = 'email' THEN r.message_json END AS message_json
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE (r.notification_id, r.route_id) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY r.notification_id, r.route_id
FOR NO KEY UPDATE OF r;

-- name: receipts_strikes
-- How many earlier receipts said that an address is dead, for each tenant whose message it was. A receipt without a
-- message counts for nobody: without a tenant it would count for all of them.
SELECT r.address, n.tenant_id, count(*) AS strikes
FROM receipts r JOIN records n ON n.notification_id = r.notification_id
WHERE r.recipient_gone AND r.address = ANY ($1::text[]) AND NOT r.receipt_key = ANY ($2::text[])
GROUP BY r.address, n.tenant_id;

-- name: receipts_change
-- The rows are locked by `receipts_routes`, in this transaction.
--   claim_token             a finished or dead-lettered route loses its claim; a late settlement of a worker is stale. The trigger
--                           of `routes` takes its ticket.
--   coalesce                the first time stays.
--   receipt_due             the report of this message has come: the next message has a deadline of its own, or none.
--   told                    the alert is written with the dead letter, in one commit.
--   kept                    the route tells its success no longer: that attempt becomes a row.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), given AS MATERIALIZED (
    SELECT * FROM unnest(
        $2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::int[], $8::text[], $9::int[], $10::text[],
        $11::boolean[], $12::boolean[], $13::boolean[], $14::boolean[], $15::boolean[], $16::boolean[], $17::text[],
        $18::text[]
    ) AS given (
        notification_id, route_id, status, lane, provider, provider_since, provider_message_id, max_attempts, receipt,
        delivered, opened, clicked, finished, reopened, buried, error_classification, error_message)
), kept AS (
    INSERT INTO attempts (
        attempt_id, notification_id, route_id, attempt, provider, outcome, provider_message_id, started_at, duration_ms,
        verdict, settled)
    SELECT r.finished_by, r.notification_id, r.route_id, r.attempt_count, r.provider, 'sent', r.provider_message_id,
           r.published_at - r.took_ms * interval '1 millisecond', r.took_ms, 'finish', r.settled_by
    FROM given JOIN routes r ON r.notification_id = given.notification_id AND r.route_id = given.route_id
    WHERE given.status <> 'published' AND r.finished_by IS NOT NULL
    ON CONFLICT (notification_id, attempt_id) DO NOTHING
), changed AS (
    UPDATE routes r
    SET status = given.status,
        finished_by = CASE WHEN given.status = 'published' THEN r.finished_by END,
        lane = given.lane,
        provider = given.provider,
        provider_since = given.provider_since,
        provider_message_id = given.provider_message_id,
        max_attempts = given.max_attempts,
        receipt = given.receipt,
        delivered_at = CASE WHEN given.delivered THEN coalesce(r.delivered_at, clock.now) END,
        opened_at = CASE WHEN given.opened THEN coalesce(r.opened_at, clock.now) ELSE r.opened_at END,
        clicked_at = CASE WHEN given.clicked THEN coalesce(r.clicked_at, clock.now) ELSE r.clicked_at END,
        published_at = CASE WHEN given.finished THEN clock.now WHEN NOT given.reopened THEN r.published_at END,
        dead_lettered_at = CASE WHEN given.buried THEN clock.now ELSE r.dead_lettered_at END,
        next_attempt_at = CASE WHEN given.reopened THEN clock.now
                               WHEN NOT given.finished AND NOT given.buried THEN r.next_attempt_at END,
        attempt_count = r.attempt_count + CASE WHEN (given.finished OR given.buried)
            AND EXISTS (SELECT FROM leases l WHERE r.ticket = ANY (l.tickets)) THEN 1 ELSE 0 END,
        claim_token = CASE WHEN NOT given.finished AND NOT given.buried THEN r.claim_token END,
        receipt_due = CASE WHEN NOT given.reopened AND NOT given.buried THEN r.receipt_due END,
        lease_owner = CASE WHEN NOT given.finished AND NOT given.buried THEN r.lease_owner END,
        last_error_classification = coalesce(given.error_classification, r.last_error_classification),
        last_error_message = coalesce(given.error_message, r.last_error_message),
        last_error_at = CASE WHEN given.error_message IS NULL THEN r.last_error_at ELSE clock.now END,
        updated_at = clock.now
    FROM clock CROSS JOIN given
    WHERE r.notification_id = given.notification_id AND r.route_id = given.route_id
    RETURNING r.notification_id, r.route_id, r.channel, r.recipient_ref, r.attempt_count, r.max_attempts,
        r.last_error_classification, r.last_error_message, given.buried, r.lane
), told AS (
    INSERT INTO outbox (
        topic, notification_id, route_id, created_at, next_attempt_at, final_attempt_count, failure_message)
    SELECT 'NotificationFailed', notification_id, route_id, clock.now, clock.now, attempt_count, last_error_message
    FROM clock CROSS JOIN changed
    WHERE buried AND lane >= $19::smallint
)
INSERT INTO dead_letters (
    notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
    failure_message, recovery_hint, created_at)
SELECT notification_id, route_id, channel, recipient_ref, attempt_count, max_attempts, last_error_classification,
       last_error_message, $1, clock.now
FROM clock CROSS JOIN changed
WHERE buried
ON CONFLICT (notification_id, route_id) DO NOTHING;

-- name: receipts_effects
-- The route and the effect of each receipt of this transaction.
UPDATE receipts r
SET effect = given.effect, notification_id = given.notification_id, route_id = given.route_id, address = given.address
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS given (
    receipt_key, effect, notification_id, route_id, address)
WHERE r.receipt_key = given.receipt_key;
