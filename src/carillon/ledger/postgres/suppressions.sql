-- Statements of suppressions: addresses that nothing is sent to.

-- name: suppress
-- Races: two reports of one address at once; a silence that an operator set meanwhile.
--   ON CONFLICT             one row a scope. A silence only ever grows: the later end stands, and with it its reason.
INSERT INTO suppressions AS s (channel, address, tenant_id, reason, source, created_at, expires_at)
SELECT channel, address, tenant_id, reason, source, clock_timestamp(),
       clock_timestamp() + seconds * interval '1 second'
FROM unnest(:channel::text[], :address::text[], :tenant_id::text[], :reason::text[], :source::text[],
            :seconds::float8[]) AS given (channel, address, tenant_id, reason, source, seconds)
ON CONFLICT (channel, address, tenant_id) DO UPDATE
SET reason = excluded.reason, source = excluded.source, expires_at = excluded.expires_at
WHERE s.expires_at < coalesce(excluded.expires_at, 'infinity');

-- name: unsuppress
DELETE FROM suppressions WHERE channel = :channel AND address = :address AND tenant_id = :tenant_id RETURNING channel;

-- name: suppressions
-- Expired silences are not shown: they bind nobody.
WITH matching AS MATERIALIZED (
    SELECT s.* FROM suppressions s
    WHERE (:channel::text IS NULL OR s.channel = :channel)
      AND (:address::text IS NULL OR s.address = :address)
      AND (:tenant_id::text IS NULL OR s.tenant_id = :tenant_id)
      AND (:source::text IS NULL OR s.source = :source)
      AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
), page AS (
    SELECT * FROM matching ORDER BY created_at DESC, channel, address, tenant_id LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (VALUES (1)) AS always (row)
LEFT JOIN page ON TRUE
ORDER BY page.created_at DESC, page.channel, page.address, page.tenant_id;

-- name: prune_suppressions
DELETE FROM suppressions WHERE expires_at <= clock_timestamp();
