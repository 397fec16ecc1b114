-- Statements of throttles: the last times of each person and category. One writer at a time.

-- name: throttle_open
INSERT INTO throttles (tenant_id, audience, category, times_json, updated_at)
VALUES (:tenant_id, :audience, :category, '[]', :now)
ON CONFLICT DO NOTHING;

-- name: throttle_lock
SELECT t.tenant_id, t.audience, t.category, t.times_json, t.rowid AS place, :now AS now_ms FROM throttles t
WHERE t.tenant_id = :tenant_id AND t.audience = :audience AND t.category = :category;

-- name: throttle_known
-- What the ledger has already, by id or by key, is not stored again and does not count again.
SELECT :notification_id AS notification_id
WHERE EXISTS (SELECT 1 FROM records n WHERE n.notification_id = :notification_id)
   OR EXISTS (SELECT 1 FROM records n WHERE n.producer = :producer AND n.idempotency_key = :idempotency_key);

-- name: throttle_keep
-- `updated_at` changes once an hour at most, so that its index is left alone.
UPDATE throttles
SET times_json = :times_json, updated_at = CASE WHEN updated_at < :now - 3600000 THEN :now ELSE updated_at END
WHERE rowid = :place;

-- name: throttle_times
SELECT t.times_json FROM throttles t
WHERE t.tenant_id = :tenant_id AND t.audience = :audience AND t.category = :category;

-- name: hasten_throttles
-- Runs in the transaction of `hasten`.
UPDATE throttles SET times_json = (
    SELECT json_group_array(value - CAST(:seconds * 1000 AS INTEGER)) FROM json_each(times_json));

-- name: prune_throttles
-- An hour later than asked for: a row may have counted for so long after it says so.
DELETE FROM throttles WHERE rowid IN (
    SELECT t.rowid FROM throttles t WHERE t.updated_at < :now - CAST((:older_than_seconds + 3600) * 1000 AS INTEGER)
    ORDER BY t.updated_at LIMIT :limit)
RETURNING category;
