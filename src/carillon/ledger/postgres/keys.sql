-- Statements of API keys.

-- name: api_key
SELECT * FROM api_keys WHERE key_id = :key_id;

-- name: api_keys
SELECT * FROM api_keys ORDER BY created_at DESC, key_id;

-- name: lock_api_keys
-- Race: two operators each make the second key of one name at the same moment.
--   SHARE ROW EXCLUSIVE     the second counts after the first has committed; looking keys up goes on meanwhile.
LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE;

-- name: add_api_key
INSERT INTO api_keys (key_id, secret_hash, tenant_id, role, name, created_at, expires_at)
SELECT :key_id, :secret_hash, :tenant_id, :role, :name::text, clock_timestamp(),
    clock_timestamp() + :lives_seconds::double precision * interval '1 second'
WHERE (
    SELECT count(*) FROM api_keys
    WHERE name = :name AND tenant_id IS NOT DISTINCT FROM :tenant_id::text AND revoked_at IS NULL
      AND (expires_at IS NULL OR expires_at > clock_timestamp())
) < :most::bigint
RETURNING *;

-- name: revoke_api_key
-- Race: two operators take the same key back.
--   coalesce                the first time stays; the row's lock makes the second see it.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE key_id = :key_id RETURNING *;

-- name: touch_api_key
-- Race: every process of a fleet notes the same use.
--   last_used_at <          the second finds the first one's note and writes nothing.
UPDATE api_keys SET last_used_at = clock_timestamp()
WHERE key_id = :key_id
  AND (last_used_at IS NULL
       OR last_used_at < clock_timestamp() - :every_seconds::double precision * interval '1 second');
