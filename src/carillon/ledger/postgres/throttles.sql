-- Statements of throttles: the last times of each person and category, no more than the throttle allows.

-- name: throttle_open
-- Race: two acceptances to one person at once; the second finds the row of the first.
INSERT INTO throttles (tenant_id, audience, category, times_json, updated_at)
SELECT given.*, '[]', clock_timestamp()
FROM unnest(:tenant_id::text[], :audience::text[], :category::text[]) AS given (tenant_id, audience, category)
ON CONFLICT DO NOTHING;

-- name: throttle_lock
-- Race: two acceptances to one person at once. The second waits for the commit of the first and counts it.
SELECT t.tenant_id, t.audience, t.category, t.times_json, t.ctid AS place,
       (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms
FROM unnest(:tenant_id::text[], :audience::text[], :category::text[]) AS asked (tenant_id, audience, category)
JOIN throttles t ON t.tenant_id = asked.tenant_id AND t.audience = asked.audience AND t.category = asked.category
ORDER BY t.tenant_id, t.audience, t.category
FOR UPDATE OF t;

-- name: throttle_known
-- Runs under the lock: what the ledger has already, by id or by key, is not stored again and does not count again.
SELECT given.notification_id
FROM unnest(:notification_id::text[], :producer::text[], :idempotency_key::text[])
    AS given (notification_id, producer, idempotency_key)
WHERE EXISTS (SELECT FROM records n WHERE n.notification_id = given.notification_id)
   OR EXISTS (SELECT FROM records n WHERE n.producer = given.producer AND n.idempotency_key = given.idempotency_key);

-- name: throttle_keep
-- Runs under the lock.
--   place                   a locked row stays where it is: no second search for it in an index that nobody has touched for long.
--   updated_at              changes once an hour at most: an update that changes no column of an index writes to none of them, and with a
--                           million people each of them is a page that nobody has touched for long.
UPDATE throttles t
SET times_json = given.times_json,
    updated_at = CASE WHEN t.updated_at < clock_timestamp() - interval '1 hour' THEN clock_timestamp() ELSE t.updated_at END
FROM unnest(:place::tid[], :times_json::text[]) AS given (place, times_json)
WHERE t.ctid = given.place;

-- name: throttle_times
SELECT t.times_json FROM throttles t
WHERE t.tenant_id = :tenant_id AND t.audience = :audience AND t.category = :category;

-- name: hasten_throttles
-- Runs in the transaction of `hasten`.
UPDATE throttles t SET times_json = (
    SELECT coalesce(json_agg(at::bigint - (:seconds::float8 * 1000)::bigint), '[]')
    FROM json_array_elements_text(t.times_json::json) AS at)::text;

-- name: prune_throttles
-- An hour later than asked for: a row may have counted for so long after it says so.
DELETE FROM throttles WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM throttles
    WHERE updated_at < clock_timestamp() - (:older_than_seconds::float8 + 3600) * interval '1 second'
    ORDER BY updated_at LIMIT :limit))
RETURNING category;
