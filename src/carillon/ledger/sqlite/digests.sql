-- Statements of digests: events join, digests close and are told. One writer at a time.

-- name: digest_lock
SELECT d.digest_id, d.tenant_id, d.audience, d.channels, d.digest_key, d.event_count, d.size FROM digests d
WHERE d.tenant_id = :tenant_id AND d.audience = :audience AND d.channels = :channels AND d.digest_key = :digest_key
  AND d.closed_at IS NULL;

-- name: digest_open
INSERT INTO digests (
    digest_id, tenant_id, audience, channels, digest_key, opened_at, closes_at, event_count, size, closed_at, intent_json)
VALUES (
    :digest_id, :tenant_id, :audience, :channels, :digest_key, :now, :closes_at_ms, :event_count, :size,
    CASE WHEN :is_full THEN :now END, :intent_json)
ON CONFLICT DO NOTHING;

-- name: digest_count
-- A full digest closes at once, so that the next event opens another one.
UPDATE digests SET event_count = :event_count, size = :size, closed_at = CASE WHEN :is_full THEN :now END
WHERE digest_id = :digest_id;

-- name: digest_member
INSERT INTO digest_members (digest_id, notification_id) VALUES (:digest_id, :notification_id) ON CONFLICT DO NOTHING;

-- name: digest_routes
-- The story of an event names its digest.
UPDATE routes SET last_error_classification = 'digest', last_error_message = :reason
WHERE notification_id = :notification_id AND recipient_ref = :recipient_ref AND status = 'skipped'
  AND last_error_message = :waits;

-- name: digest_due
SELECT d.digest_id FROM digests d
WHERE d.told_at IS NULL AND (d.closes_at <= :now OR d.closed_at IS NOT NULL)
  AND (d.taken_until IS NULL OR d.taken_until <= :now)
LIMIT 1;

-- name: digest_close
-- Race: a process that died before it told.
--   closed_at               once set, no event joins: those who tell it again find the same events.
--   taken_until             a process that died holds a digest only for so long.
UPDATE digests
SET closed_at = coalesce(closed_at, :now), taken_until = :now + CAST(:lease_seconds * 1000 AS INTEGER)
WHERE digest_id IN (
    SELECT due.digest_id FROM digests due
    WHERE due.told_at IS NULL AND (due.closes_at <= :now OR due.closed_at IS NOT NULL)
      AND (due.taken_until IS NULL OR due.taken_until <= :now)
    ORDER BY due.closes_at LIMIT :limit)
RETURNING digest_id, digest_key, intent_json;

-- name: digest_events
-- Without those that were cancelled or replaced since; `late` are those that have expired.
SELECT m.digest_id, n.notification_id, n.payload_json, n.expires_at AS expires_at_ms,
       coalesce(n.expires_at <= d.closed_at, 0) AS late
FROM digest_members m
JOIN digests d ON d.digest_id = m.digest_id
JOIN records n ON n.notification_id = m.notification_id
WHERE m.digest_id IN (SELECT value FROM json_each(:digest_ids)) AND n.stopped IS NULL
ORDER BY m.digest_id, n.accepted_at, n.notification_id;

-- name: digest_left_out
--   audience                the event may wait in the digests of others too, or was told there.
UPDATE routes SET last_error_classification = :gate, last_error_message = :reason, updated_at = :now
WHERE notification_id = :notification_id AND recipient_ref = (SELECT d.audience FROM digests d WHERE d.digest_id = :digest_id)
  AND status = 'skipped' AND last_error_classification = 'digest';

-- name: digest_replaced
--   taken_until             a digest that is full and that nobody has taken yet loses its event like an open one.
UPDATE routes SET last_error_classification = :gate, last_error_message = :reason, updated_at = :now
WHERE notification_id = :notification_id
  -- if api
  AND EXISTS (
      SELECT 1 FROM digest_members m JOIN digests d ON d.digest_id = m.digest_id
      WHERE m.notification_id = routes.notification_id AND d.audience = routes.recipient_ref
        AND d.told_at IS NULL AND d.taken_until IS NULL)
  -- else
  AND FALSE
  -- end
  AND status = 'skipped' AND last_error_classification = 'digest';

-- name: digest_told
UPDATE digests SET told_at = :now, error = :error, taken_until = NULL WHERE digest_id = :digest_id AND told_at IS NULL
RETURNING digest_id;

-- name: digest_untold
-- The stories of its events name no digest that does not exist.
UPDATE routes SET last_error_message = :reason, updated_at = :now
WHERE notification_id IN (SELECT m.notification_id FROM digest_members m WHERE m.digest_id = :digest_id)
  AND recipient_ref = (SELECT d.audience FROM digests d WHERE d.digest_id = :digest_id)
  AND status = 'skipped' AND last_error_classification = 'digest';

-- name: digests
WITH matching AS MATERIALIZED (
    SELECT d.digest_id, d.tenant_id, d.audience, d.channels, d.digest_key, d.opened_at, d.closes_at, d.closed_at, d.told_at,
           d.event_count, d.error
    FROM digests d
    WHERE (:tenant_id IS NULL OR d.tenant_id = :tenant_id) AND (:open IS NULL OR (d.told_at IS NULL) = :open)
), page AS (
    SELECT *, opened_at * 1000 AS place FROM matching
    WHERE :before_us IS NULL OR (opened_at, digest_id) < (:before_us / 1000, :before_id)
    ORDER BY opened_at DESC, digest_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.opened_at DESC, page.digest_id DESC;

-- name: hasten_digests
-- Runs in the transaction of `hasten`.
UPDATE digests SET closes_at = closes_at - CAST(:seconds * 1000 AS INTEGER) WHERE told_at IS NULL;

-- name: prune_digests
-- Only what was told. The rows of its events go with it.
DELETE FROM digests WHERE rowid IN (
    SELECT d.rowid FROM digests d WHERE d.told_at < :now - CAST(:older_than_seconds * 1000 AS INTEGER)
    ORDER BY d.told_at LIMIT :limit)
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
