-- Statements of job logs and of effects that run once.

-- name: write_job_logs
INSERT INTO job_logs (service, queue, message_id, correlation_id, idempotency_key, status, attempts, last_error,
                      next_retry_at, action, created_at, updated_at)
VALUES (:service, :queue, :message_id, :correlation_id, :idempotency_key, :status, :attempts, :last_error,
        CAST(round(:next_retry_at * 1000) AS INTEGER), :action, CAST(round(:since * 1000) AS INTEGER),
        CAST(round(:at * 1000) AS INTEGER))
ON CONFLICT (queue, message_id) DO UPDATE
SET service = excluded.service, status = excluded.status, attempts = excluded.attempts,
    last_error = coalesce(excluded.last_error, last_error), next_retry_at = excluded.next_retry_at,
    action = excluded.action, updated_at = excluded.updated_at
WHERE updated_at <= excluded.updated_at;

-- name: job_logs
SELECT id, service, queue, message_id, correlation_id, idempotency_key, status, attempts, last_error, next_retry_at,
       action, created_at, updated_at, updated_at * 1000 AS place
FROM job_logs
WHERE (:queue IS NULL OR queue = :queue) AND (:status IS NULL OR status = :status)
  AND (:correlation_id IS NULL OR correlation_id = :correlation_id)
  AND (:idempotency_key IS NULL OR idempotency_key = :idempotency_key)
  AND (:before_us IS NULL OR (updated_at, id) < (:before_us / 1000, :before_id))
ORDER BY updated_at DESC, id DESC
LIMIT :limit;

-- name: begin_effect
INSERT INTO job_effects (effect_key, holder, held_until)
VALUES (:key, :holder, :now + CAST(round(:seconds * 1000) AS INTEGER))
ON CONFLICT (effect_key) DO UPDATE
SET holder = excluded.holder, held_until = excluded.held_until
WHERE done_at IS NULL AND (holder = excluded.holder OR held_until <= :now)
RETURNING TRUE AS begun;

-- name: effect_done
SELECT done_at IS NOT NULL AS done FROM job_effects WHERE effect_key = :key;

-- name: finish_effect
UPDATE job_effects SET done_at = :now WHERE effect_key = :key AND done_at IS NULL;

-- name: abandon_effect
DELETE FROM job_effects WHERE effect_key = :key AND holder = :holder AND done_at IS NULL;

-- name: prune_jobs
DELETE FROM job_logs WHERE id IN (
    SELECT id FROM job_logs WHERE updated_at < :now - CAST(round(:older_than_seconds * 1000) AS INTEGER)
    ORDER BY updated_at LIMIT :limit)
RETURNING id;

-- name: prune_effects
DELETE FROM job_effects WHERE effect_key IN (
    SELECT effect_key FROM job_effects WHERE done_at < :now - CAST(round(:older_than_seconds * 1000) AS INTEGER)
    LIMIT :limit)
RETURNING 1 AS pruned;
