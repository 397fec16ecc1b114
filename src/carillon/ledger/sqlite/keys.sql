-- Statements of API keys.

-- name: api_key
SELECT * FROM api_keys WHERE key_id = :key_id;

-- name: api_keys
SELECT * FROM api_keys ORDER BY created_at DESC, key_id;

-- name: lock_api_keys
-- The writer is alone with the file: there is nothing to lock.
SELECT 1 AS locked;

-- name: add_api_key
-- Race: two operators each make the second key of one name at the same moment.
--   BEGIN IMMEDIATE         the second counts after the first has committed.
INSERT INTO api_keys (key_id, secret_hash, tenant_id, role, name, created_at, expires_at)
SELECT :key_id, :secret_hash, :tenant_id, :role, :name, :now, :now + CAST(:lives_seconds * 1000 AS INTEGER)
WHERE (
    SELECT count(*) FROM api_keys
    WHERE name = :name AND tenant_id IS :tenant_id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
) < :most
RETURNING *;

-- name: revoke_api_key
-- Race: two operators take the same key back.
--   coalesce                the first time stays.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, :now) WHERE key_id = :key_id RETURNING *;

-- name: touch_api_key
-- Race: every process notes the same use.
--   last_used_at <          the second finds the first one's note and writes nothing.
UPDATE api_keys SET last_used_at = :now
WHERE key_id = :key_id AND (last_used_at IS NULL OR last_used_at < :now - CAST(:every_seconds * 1000 AS INTEGER));
