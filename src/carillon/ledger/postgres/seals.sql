-- Statements of sealed columns; `one` and `two` are the sealed columns of a table, in this order.

-- name: seal_keys
-- Every key that something may be sealed with.
SELECT key_id FROM seal_keys;

-- name: note_seal_key
-- Race: replicas start together; the first one writes it down.
INSERT INTO seal_keys (key_id, first_used_at) VALUES (:key_id, clock_timestamp()) ON CONFLICT (key_id) DO NOTHING;

-- name: forget_seal_keys
DELETE FROM seal_keys WHERE key_id <> :key_id;

-- name: unsealed_suppressions
-- Race: a worker changes a row while it is sealed anew.
--   FOR UPDATE              the row keeps its place until we have written it.
--   SKIP LOCKED             a row in use is left for the next start; its key is kept until then.
SELECT ctid AS place, address AS one, NULL::text AS two
FROM suppressions
WHERE address NOT LIKE :pattern
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: reseal_suppressions
-- Race: the same suppression was written under the first key meanwhile.
--   ON CONFLICT             that one stays.
WITH moved AS (
    DELETE FROM suppressions s
    USING unnest(:place::tid[], :one::text[], :two::text[]) AS given (place, one, two)
    WHERE s.ctid = given.place
    RETURNING s.suppression_id, s.channel, given.one AS address, s.tenant_id, s.kind, s.reason, s.source, s.created_at,
        s.expires_at
)
INSERT INTO suppressions (suppression_id, channel, address, tenant_id, kind, reason, source, created_at, expires_at)
SELECT suppression_id, channel, address, tenant_id, kind, reason, source, created_at, expires_at FROM moved
ON CONFLICT (channel, address, tenant_id) DO NOTHING;

-- name: unsealed_receipts
-- Race: a worker changes a row while it is sealed anew.
--   FOR UPDATE              the row keeps its place until we have written it.
--   SKIP LOCKED             a row in use is left for the next start; its key is kept until then.
SELECT ctid AS place, address AS one, NULL::text AS two
FROM receipts
WHERE address NOT LIKE :pattern
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: reseal_receipts
UPDATE receipts SET address = given.one
FROM unnest(:place::tid[], :one::text[], :two::text[]) AS given (place, one, two)
WHERE receipts.ctid = given.place;

-- name: unsealed_routes
-- Race: a worker changes a row while it is sealed anew.
--   FOR UPDATE              the row keeps its place until we have written it.
--   SKIP LOCKED             a row in use is left for the next start; its key is kept until then.
SELECT ctid AS place, address AS one, message_json AS two
FROM routes
WHERE address NOT LIKE :pattern OR message_json NOT LIKE :pattern
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: reseal_routes
UPDATE routes SET address = given.one, message_json = given.two
FROM unnest(:place::tid[], :one::text[], :two::text[]) AS given (place, one, two)
WHERE routes.ctid = given.place;

-- name: unsealed_records
-- Race: a worker changes a row while it is sealed anew.
--   FOR UPDATE              the row keeps its place until we have written it.
--   SKIP LOCKED             a row in use is left for the next start; its key is kept until then.
SELECT ctid AS place, payload_json AS one, metadata_json AS two
FROM records
WHERE payload_json NOT LIKE :pattern OR metadata_json NOT LIKE :pattern
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: reseal_records
UPDATE records SET payload_json = given.one, metadata_json = given.two
FROM unnest(:place::tid[], :one::text[], :two::text[]) AS given (place, one, two)
WHERE records.ctid = given.place;

-- name: unsealed_preferences
-- Race: a worker changes a row while it is sealed anew.
--   FOR UPDATE              the row keeps its place until we have written it.
--   SKIP LOCKED             a row in use is left for the next start; its key is kept until then.
SELECT ctid AS place, contacts_json AS one, user_id AS two
FROM preferences
WHERE (contacts_json <> '{}' AND contacts_json NOT LIKE '%"' || :pattern)
   OR ((user_id LIKE 'email:%' OR user_id LIKE 'phone:%' OR user_id LIKE 'token:%' OR user_id LIKE 'url:%')
       AND user_id NOT LIKE '%:' || :pattern)
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: reseal_preferences
UPDATE preferences SET contacts_json = given.one, user_id = given.two
FROM unnest(:place::tid[], :one::text[], :two::text[]) AS given (place, one, two)
WHERE preferences.ctid = given.place;

-- name: unsealed_digests
-- Race: an event joins the digest while it is sealed anew.
--   FOR UPDATE              the row keeps its place until we have written it.
--   SKIP LOCKED             a row in use is left for the next start; its key is kept until then.
SELECT ctid AS place, intent_json AS one, NULL::text AS two
FROM digests
WHERE intent_json NOT LIKE :pattern
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: reseal_digests
UPDATE digests SET intent_json = given.one
FROM unnest(:place::tid[], :one::text[], :two::text[]) AS given (place, one, two)
WHERE digests.ctid = given.place;

-- name: unsealed_erasures
-- Race: an erasure goes on while its row is sealed anew.
--   FOR UPDATE              the row keeps its place until we have written it.
--   SKIP LOCKED             a row in use is left for the next start; its key is kept until then.
SELECT ctid AS place, person_json AS one, NULL::text AS two
FROM erasures
WHERE person_json NOT LIKE :pattern
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: reseal_erasures
UPDATE erasures SET person_json = given.one
FROM unnest(:place::tid[], :one::text[], :two::text[]) AS given (place, one, two)
WHERE erasures.ctid = given.place;
