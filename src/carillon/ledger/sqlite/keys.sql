-- Statements of API keys.

-- name: api_key
SELECT * FROM api_keys WHERE key_id = ?1;

-- name: api_keys
SELECT * FROM api_keys ORDER BY created_at DESC, key_id;

-- name: add_api_key
-- Race: two operators each make the second key of one name at the same moment.
--   BEGIN IMMEDIATE         the second counts after the first has committed.
INSERT INTO api_keys (key_id, secret_hash, tenant_id, role, name, created_at, expires_at)
SELECT ?1, ?2, ?3, ?4, ?5, ?8, ?8 + CAST(?6 * 1000 AS INTEGER)
WHERE (
    SELECT count(*) FROM api_keys
    WHERE name = ?5 AND tenant_id IS ?3 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?8)
) < ?7
RETURNING *;

-- name: revoke_api_key
-- Race: two operators take the same key back.
--   coalesce                the first time stays.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, ?2) WHERE key_id = ?1 RETURNING *;

-- name: touch_api_key
-- Race: every process notes the same use.
--   last_used_at <          the second finds the first one's note and writes nothing.
UPDATE api_keys SET last_used_at = ?3
WHERE key_id = ?1 AND (last_used_at IS NULL OR last_used_at < ?3 - CAST(?2 * 1000 AS INTEGER));
