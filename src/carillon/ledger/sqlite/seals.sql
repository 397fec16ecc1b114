-- Statements of sealed columns; `one` and `two` are the sealed columns of a table, in this order.

-- name: seal_keys
-- Every key that something may be sealed with.
SELECT key_id FROM seal_keys;

-- name: note_seal_key
-- Race: replicas start together; the first one writes it down.
INSERT INTO seal_keys (key_id, first_used_at) VALUES (:key_id, :now) ON CONFLICT (key_id) DO NOTHING;

-- name: forget_seal_keys
DELETE FROM seal_keys WHERE key_id <> :key_id;

-- name: unsealed_suppressions
-- The writer holds the file's lock until it has sealed them anew.
SELECT rowid AS place, address AS one, NULL AS two
FROM suppressions
WHERE address NOT LIKE :pattern
LIMIT :limit;

-- name: reseal_suppressions
-- Replaces the same suppression if it was already written under the first key.
UPDATE OR REPLACE suppressions SET address = :one WHERE rowid = :place AND :two IS NULL;

-- name: unsealed_receipts
-- The writer holds the file's lock until it has sealed them anew.
SELECT rowid AS place, address AS one, NULL AS two
FROM receipts
WHERE address NOT LIKE :pattern
LIMIT :limit;

-- name: reseal_receipts
UPDATE receipts SET address = :one WHERE rowid = :place AND :two IS NULL;

-- name: unsealed_routes
-- The writer holds the file's lock until it has sealed them anew.
SELECT rowid AS place, address AS one, message_json AS two
FROM routes
WHERE address NOT LIKE :pattern OR message_json NOT LIKE :pattern
LIMIT :limit;

-- name: reseal_routes
UPDATE routes SET address = :one, message_json = :two WHERE rowid = :place;

-- name: unsealed_records
-- The writer holds the file's lock until it has sealed them anew.
SELECT rowid AS place, payload_json AS one, metadata_json AS two
FROM records
WHERE payload_json NOT LIKE :pattern OR metadata_json NOT LIKE :pattern
LIMIT :limit;

-- name: reseal_records
UPDATE records SET payload_json = :one, metadata_json = :two WHERE rowid = :place;

-- name: unsealed_preferences
-- The writer holds the file's lock until it has sealed them anew.
SELECT rowid AS place, contacts_json AS one, user_id AS two
FROM preferences
WHERE (contacts_json <> '{}' AND contacts_json NOT LIKE '%"' || :pattern)
   OR ((user_id LIKE 'email:%' OR user_id LIKE 'phone:%' OR user_id LIKE 'token:%' OR user_id LIKE 'url:%')
       AND user_id NOT LIKE '%:' || :pattern)
LIMIT :limit;

-- name: reseal_preferences
UPDATE preferences SET contacts_json = :one, user_id = :two WHERE rowid = :place;

-- name: unsealed_digests
SELECT rowid AS place, intent_json AS one, NULL AS two
FROM digests
WHERE intent_json NOT LIKE :pattern
LIMIT :limit;

-- name: reseal_digests
UPDATE digests SET intent_json = :one WHERE rowid = :place AND :two IS NULL;

-- name: unsealed_erasures
SELECT rowid AS place, person_json AS one, NULL AS two
FROM erasures
WHERE person_json NOT LIKE :pattern
LIMIT :limit;

-- name: reseal_erasures
UPDATE erasures SET person_json = :one WHERE rowid = :place AND :two IS NULL;
