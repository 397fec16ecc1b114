-- Statements of digests: events join, digests close and are told.

-- name: digest_lock
-- Race: the digest closes while events join. The second one waits; a digest that has closed meanwhile is not found.
SELECT d.digest_id, d.tenant_id, d.audience, d.channels, d.digest_key, d.event_count, d.size
FROM unnest(:tenant_id::text[], :audience::text[], :channels::text[], :digest_key::text[])
    AS asked (tenant_id, audience, channels, digest_key)
JOIN digests d ON d.tenant_id = asked.tenant_id AND d.audience = asked.audience AND d.channels = asked.channels
    AND d.digest_key = asked.digest_key AND d.closed_at IS NULL
ORDER BY d.tenant_id, d.audience, d.channels, d.digest_key
FOR UPDATE OF d;

-- name: digest_open
-- Race: two replicas open the digest of one person at once.
--   ON CONFLICT             the second waits for the first and writes nothing; it then joins the digest of the first.
INSERT INTO digests (
    digest_id, tenant_id, audience, channels, digest_key, opened_at, closes_at, event_count, size, closed_at, intent_json)
SELECT digest_id, tenant_id, audience, channels, digest_key, clock_timestamp(), to_timestamp(closes_at_ms / 1000.0),
       event_count, size, CASE WHEN is_full THEN clock_timestamp() END, intent_json
FROM unnest(:digest_id::text[], :tenant_id::text[], :audience::text[], :channels::text[], :digest_key::text[],
            :closes_at_ms::float8[], :event_count::int[], :size::int[], :is_full::boolean[], :intent_json::text[])
    AS given (digest_id, tenant_id, audience, channels, digest_key, closes_at_ms, event_count, size, is_full, intent_json)
ON CONFLICT DO NOTHING;

-- name: digest_count
-- Runs under the lock. A full digest closes at once, so that the next event opens another one.
UPDATE digests d SET event_count = given.event_count, size = given.size,
    closed_at = CASE WHEN given.is_full THEN clock_timestamp() END
FROM unnest(:digest_id::text[], :event_count::int[], :size::int[], :is_full::boolean[])
    AS given (digest_id, event_count, size, is_full)
WHERE d.digest_id = given.digest_id;

-- name: digest_member
INSERT INTO digest_members (digest_id, notification_id)
SELECT * FROM unnest(:digest_id::text[], :notification_id::text[])
ON CONFLICT DO NOTHING;

-- name: digest_routes
-- The story of an event names its digest.
UPDATE routes r SET last_error_classification = 'digest', last_error_message = given.reason
FROM unnest(:notification_id::text[], :recipient_ref::text[], :reason::text[], :waits::text[])
    AS given (notification_id, recipient_ref, reason, waits)
WHERE r.notification_id = given.notification_id AND r.recipient_ref = given.recipient_ref AND r.status = 'skipped'
  AND r.last_error_message = given.waits;

-- name: digest_due
-- One look into the index: most of the time nothing is due.
SELECT d.digest_id FROM digests d
WHERE d.told_at IS NULL AND (d.closes_at <= clock_timestamp() OR d.closed_at IS NOT NULL)
  AND (d.taken_until IS NULL OR d.taken_until <= clock_timestamp())
LIMIT 1;

-- name: digest_close
-- Races: events that join at this moment, another process that closes, a process that died before it told.
--   FOR UPDATE SKIP LOCKED  what another process takes, or an event joins, comes in the next round.
--   closed_at               once set, no event joins: those who tell it again find the same events.
--   taken_until             a process that died holds a digest only for so long.
UPDATE digests d
SET closed_at = coalesce(d.closed_at, clock_timestamp()),
    taken_until = clock_timestamp() + :lease_seconds::float8 * interval '1 second'
WHERE d.digest_id = ANY (ARRAY(
    SELECT due.digest_id FROM digests due
    WHERE due.told_at IS NULL AND (due.closes_at <= clock_timestamp() OR due.closed_at IS NOT NULL)
      AND (due.taken_until IS NULL OR due.taken_until <= clock_timestamp())
    ORDER BY due.closes_at LIMIT :limit
    FOR UPDATE SKIP LOCKED))
RETURNING d.digest_id, d.digest_key, d.intent_json;

-- name: digest_events
-- Without those that were cancelled or replaced since; `late` are those that have expired.
SELECT m.digest_id, n.notification_id, n.payload_json,
       round(date_part('epoch', n.expires_at) * 1000)::bigint AS expires_at_ms,
       coalesce(n.expires_at <= d.closed_at, FALSE) AS late
FROM digest_members m
JOIN digests d ON d.digest_id = m.digest_id
JOIN records n ON n.notification_id = m.notification_id
WHERE m.digest_id = ANY (:digest_ids::text[]) AND n.stopped IS NULL
ORDER BY m.digest_id, n.accepted_at, n.notification_id;

-- name: digest_left_out
--   audience                the event may wait in the digests of others too, or was told there.
UPDATE routes r SET last_error_classification = given.gate, last_error_message = given.reason, updated_at = clock_timestamp()
FROM unnest(:digest_id::text[], :notification_id::text[], :gate::text[], :reason::text[])
    AS given (digest_id, notification_id, gate, reason)
JOIN digests d ON d.digest_id = given.digest_id
WHERE r.notification_id = given.notification_id AND r.recipient_ref = d.audience
  AND r.status = 'skipped' AND r.last_error_classification = 'digest';

-- name: digest_replaced
-- Runs in the transaction of `enrol`, or of a cancellation. Race: the digest closes at this moment. It keeps its events, and their stories stay.
--   taken_until             a digest that is full and that nobody has taken yet loses its event like an open one.
UPDATE routes r SET last_error_classification = given.gate, last_error_message = given.reason, updated_at = clock_timestamp()
FROM unnest(:notification_id::text[], :gate::text[], :reason::text[]) AS given (notification_id, gate, reason)
WHERE r.notification_id = given.notification_id
  -- if api
  AND EXISTS (
      SELECT FROM digest_members m JOIN digests d ON d.digest_id = m.digest_id
      WHERE m.notification_id = r.notification_id AND d.audience = r.recipient_ref
        AND d.told_at IS NULL AND d.taken_until IS NULL)
  -- else
  AND FALSE
  -- end
  AND r.status = 'skipped' AND r.last_error_classification = 'digest';

-- name: digest_told
UPDATE digests SET told_at = clock_timestamp(), error = :error, taken_until = NULL
WHERE digest_id = :digest_id AND told_at IS NULL
RETURNING digest_id;

-- name: digest_untold
-- The stories of its events name no digest that does not exist.
UPDATE routes r SET last_error_message = :reason, updated_at = clock_timestamp()
FROM digest_members m JOIN digests d ON d.digest_id = m.digest_id
WHERE m.digest_id = :digest_id AND r.notification_id = m.notification_id AND r.recipient_ref = d.audience
  AND r.status = 'skipped' AND r.last_error_classification = 'digest';

-- name: digests
WITH matching AS MATERIALIZED (
    SELECT d.digest_id, d.tenant_id, d.audience, d.channels, d.digest_key, d.opened_at, d.closes_at, d.closed_at, d.told_at,
           d.event_count, d.error
    FROM digests d
    WHERE (:tenant_id::text IS NULL OR d.tenant_id = :tenant_id)
      AND (:open::boolean IS NULL OR (d.told_at IS NULL) = :open)
), page AS (
    SELECT *, (extract(epoch FROM opened_at) * 1000000)::bigint AS place FROM matching
    WHERE :before_us::bigint IS NULL OR (opened_at, digest_id) < (timestamptz 'epoch' + :before_us::float8 * interval '1 microsecond', :before_id::text)
    ORDER BY opened_at DESC, digest_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (VALUES (1)) AS always (row)
LEFT JOIN page ON TRUE
ORDER BY page.opened_at DESC, page.digest_id DESC;

-- name: hasten_digests
-- Runs in the transaction of `hasten`.
UPDATE digests SET closes_at = closes_at - make_interval(secs => :seconds) WHERE told_at IS NULL;

-- name: prune_digests
-- Only what was told. The rows of its events go with it.
DELETE FROM digests WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM digests
    WHERE told_at < clock_timestamp() - :older_than_seconds::float8 * interval '1 second'
    ORDER BY told_at LIMIT :limit))
RETURNING 1 AS pruned;

-- name: open_digests_of_person
-- The open digests of one person, by the index of open ones.
SELECT d.digest_id, d.tenant_id, d.audience, d.channels, d.digest_key, d.opened_at, d.closes_at, d.closed_at, d.told_at,
       d.event_count, d.size, d.error
FROM digests d
WHERE d.tenant_id = :tenant_id AND d.audience = :audience AND d.closed_at IS NULL
ORDER BY d.closes_at, d.digest_id
LIMIT :limit;

-- name: digest_contents
-- The events of one digest, the oldest first: ids grow with time.
SELECT d.digest_id, d.tenant_id, d.audience, d.channels, d.digest_key, d.opened_at, d.closes_at, d.closed_at, d.told_at,
       d.event_count, d.error, m.notification_id, n.notification_type, n.category, n.accepted_at
FROM digests d
LEFT JOIN digest_members m ON m.digest_id = d.digest_id
LEFT JOIN records n ON n.notification_id = m.notification_id
WHERE d.digest_id = :digest_id
ORDER BY m.notification_id
LIMIT :limit;
