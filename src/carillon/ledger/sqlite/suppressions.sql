-- Statements of suppressions: addresses that nothing is sent to.

-- name: suppress
-- Race: a silence that an operator set meanwhile.
--   ON CONFLICT             one row a scope. A silence only ever grows: the later end stands, and with it its reason.
INSERT INTO suppressions (channel, address, tenant_id, reason, source, created_at, expires_at)
VALUES (:channel, :address, :tenant_id, :reason, :source, :now, :now + CAST(round(:seconds * 1000) AS INTEGER))
ON CONFLICT (channel, address, tenant_id) DO UPDATE
SET reason = excluded.reason, source = excluded.source, expires_at = excluded.expires_at
WHERE expires_at < coalesce(excluded.expires_at, 9223372036854775807);

-- name: unsuppress
DELETE FROM suppressions WHERE channel = :channel AND address = :address AND tenant_id = :tenant_id RETURNING channel;

-- name: suppressions
-- Expired silences are not shown: they bind nobody.
WITH matching AS MATERIALIZED (
    SELECT s.* FROM suppressions s
    WHERE (:channel IS NULL OR s.channel = :channel)
      AND (:address IS NULL OR s.address = :address)
      AND (:tenant_id IS NULL OR s.tenant_id = :tenant_id)
      AND (:source IS NULL OR s.source = :source)
      AND (s.expires_at IS NULL OR s.expires_at > :now)
), page AS (
    SELECT * FROM matching ORDER BY created_at DESC, channel, address, tenant_id LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.created_at DESC, page.channel, page.address, page.tenant_id;

-- name: prune_suppressions
DELETE FROM suppressions WHERE expires_at <= :now;
