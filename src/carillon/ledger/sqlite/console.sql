-- Statements of the console's charts. Filters left out are NULL and match everything.

-- name: history_steps
-- How many routes ended in each step of a time. `updated_at` bounds the scan by its index: no route ended after it.
-- The template and the tenant stand in another table, which is read only if they are asked for.
-- A time before the first step has a negative number; SQLite's division rounds towards zero, so one is taken off there.
SELECT (ended.at - :step_from_ms) / :step_ms - (ended.at < :step_from_ms) AS step, ended.status, count(*) AS routes,
       sum(ended.took_ms) AS took_ms, count(ended.took_ms) AS told, max(ended.took_ms) AS slowest_ms
FROM (
    SELECT coalesce(r.published_at, r.dead_lettered_at, r.skipped_at, r.updated_at) AS at, r.status, r.took_ms
    FROM routes r
    WHERE r.next_attempt_at IS NULL AND r.updated_at >= :from_ms
      AND (:channel IS NULL OR r.channel = :channel)
      AND (:provider IS NULL OR r.provider = :provider)
      AND (:template IS NULL AND :tenant IS NULL OR EXISTS (
              SELECT 1 FROM records n
              WHERE n.notification_id = r.notification_id
                AND (:template IS NULL OR n.notification_type = :template)
                AND (:tenant IS NULL OR coalesce(n.tenant_id, '') = :tenant)))
) AS ended
WHERE ended.at >= :from_ms AND ended.at < :until_ms
GROUP BY 1, 2;

-- name: history_accepted
SELECT (n.accepted_at - :step_from_ms) / :step_ms - (n.accepted_at < :step_from_ms) AS step, count(*) AS accepted
FROM records n
WHERE n.accepted_at >= :from_ms AND n.accepted_at < :until_ms
  AND (:template IS NULL OR n.notification_type = :template)
  AND (:tenant IS NULL OR coalesce(n.tenant_id, '') = :tenant)
  AND (:channel IS NULL AND :provider IS NULL OR EXISTS (
          SELECT 1 FROM routes r
          WHERE r.notification_id = n.notification_id AND (:channel IS NULL OR r.channel = :channel)
            AND (:provider IS NULL OR r.provider = :provider)))
GROUP BY 1;

-- name: history_groups
-- The same routes by channel, provider, template or tenant, the most first.
SELECT ended.name, count(*) FILTER (WHERE ended.status = 'published') AS delivered,
       count(*) FILTER (WHERE ended.status = 'dead_letter') AS failed,
       count(*) FILTER (WHERE ended.status = 'skipped') AS skipped,
       sum(ended.took_ms) AS took_ms, count(ended.took_ms) AS told
FROM (
    SELECT coalesce(r.published_at, r.dead_lettered_at, r.skipped_at, r.updated_at) AS at, r.status, r.took_ms,
           coalesce(CASE :by WHEN 'channel' THEN r.channel WHEN 'provider' THEN r.provider
               WHEN 'template' THEN (SELECT n.notification_type FROM records n WHERE n.notification_id = r.notification_id)
               ELSE (SELECT n.tenant_id FROM records n WHERE n.notification_id = r.notification_id) END, '') AS name
    FROM routes r
    WHERE r.next_attempt_at IS NULL AND r.updated_at >= :from_ms
) AS ended
WHERE ended.at >= :from_ms AND ended.at < :until_ms
GROUP BY ended.name
ORDER BY count(*) DESC, ended.name
LIMIT :limit;
