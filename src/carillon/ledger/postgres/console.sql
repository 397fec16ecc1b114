-- Statements of the console's charts. Filters left out are NULL and match everything.

-- name: history_steps
-- How many routes ended in each step of a time. `updated_at` bounds the scan by its index: no route ended after it.
-- The template and the tenant stand in another table, which is read only if they are asked for.
SELECT floor((:step_from_ms::float8 * -1 + date_part('epoch', ended.at) * 1000) / :step_ms::float8)::int AS step, ended.status,
       count(*) AS routes, sum(ended.took_ms) AS took_ms, count(ended.took_ms) AS told, max(ended.took_ms) AS slowest_ms
FROM (
    SELECT coalesce(r.published_at, r.dead_lettered_at, r.skipped_at, r.updated_at) AS at, r.status, r.took_ms
    FROM routes r
    WHERE r.next_attempt_at IS NULL AND r.updated_at >= to_timestamp(:from_ms::float8 / 1000.0)
      AND (:channel::text IS NULL OR r.channel = :channel)
      AND (:provider::text IS NULL OR r.provider = :provider)
      AND (:template::text IS NULL AND :tenant::text IS NULL OR EXISTS (
              SELECT FROM records n
              WHERE n.notification_id = r.notification_id
                AND (:template::text IS NULL OR n.notification_type = :template)
                AND (:tenant::text IS NULL OR coalesce(n.tenant_id, '') = :tenant)))
) AS ended
WHERE ended.at >= to_timestamp(:from_ms::float8 / 1000.0) AND ended.at < to_timestamp(:until_ms::float8 / 1000.0)
GROUP BY 1, 2;

-- name: history_accepted
SELECT floor((:step_from_ms::float8 * -1 + date_part('epoch', n.accepted_at) * 1000) / :step_ms::float8)::int AS step,
       count(*) AS accepted
FROM records n
WHERE n.accepted_at >= to_timestamp(:from_ms::float8 / 1000.0) AND n.accepted_at < to_timestamp(:until_ms::float8 / 1000.0)
  AND (:template::text IS NULL OR n.notification_type = :template)
  AND (:tenant::text IS NULL OR coalesce(n.tenant_id, '') = :tenant)
  AND (:channel::text IS NULL AND :provider::text IS NULL OR EXISTS (
          SELECT FROM routes r
          WHERE r.notification_id = n.notification_id AND (:channel::text IS NULL OR r.channel = :channel)
            AND (:provider::text IS NULL OR r.provider = :provider)))
GROUP BY 1;

-- name: history_groups
-- The same routes by channel, provider, template or tenant, the most first.
SELECT ended.name, count(*) FILTER (WHERE ended.status = 'published') AS delivered,
       count(*) FILTER (WHERE ended.status = 'dead_letter') AS failed,
       count(*) FILTER (WHERE ended.status = 'skipped') AS skipped,
       sum(ended.took_ms) AS took_ms, count(ended.took_ms) AS told
FROM (
    SELECT coalesce(r.published_at, r.dead_lettered_at, r.skipped_at, r.updated_at) AS at, r.status, r.took_ms,
           coalesce(CASE :by::text WHEN 'channel' THEN r.channel WHEN 'provider' THEN r.provider
               WHEN 'template' THEN (SELECT n.notification_type FROM records n WHERE n.notification_id = r.notification_id)
               ELSE (SELECT n.tenant_id FROM records n WHERE n.notification_id = r.notification_id) END, '') AS name
    FROM routes r
    WHERE r.next_attempt_at IS NULL AND r.updated_at >= to_timestamp(:from_ms::float8 / 1000.0)
) AS ended
WHERE ended.at >= to_timestamp(:from_ms::float8 / 1000.0) AND ended.at < to_timestamp(:until_ms::float8 / 1000.0)
GROUP BY ended.name
ORDER BY count(*) DESC, ended.name
LIMIT :limit;
