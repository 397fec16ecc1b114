-- Statements of job logs and of effects that run once.

-- name: write_job_logs
-- Race: two processes write about one message at once, the later writer about the earlier moment.
--   (queue, message_id) UNIQUE     one row for both writers
--   updated_at <= excluded         the row of the later moment stays; both moments are by the clock of one Redis
--   ORDER BY                       rivals lock rows in one order and never wait for each other in a circle
INSERT INTO job_logs AS kept (service, queue, message_id, correlation_id, idempotency_key, status, attempts, last_error,
                              next_retry_at, action, created_at, updated_at)
SELECT row.service, row.queue, row.message_id, row.correlation_id, row.idempotency_key, row.status, row.attempts,
       row.last_error, to_timestamp(row.next_retry_at), row.action, to_timestamp(row.since), to_timestamp(row.at)
FROM unnest(:service::text[], :queue::text[], :message_id::text[], :correlation_id::text[], :idempotency_key::text[],
    :status::text[], :attempts::int[], :last_error::text[],
            :next_retry_at::double precision[], :action::text[], :since::double precision[], :at::double precision[])
     AS row (service, queue, message_id, correlation_id, idempotency_key, status, attempts, last_error, next_retry_at,
             action, since, at)
ORDER BY row.queue, row.message_id
ON CONFLICT (queue, message_id) DO UPDATE
SET service = excluded.service, status = excluded.status, attempts = excluded.attempts,
    last_error = coalesce(excluded.last_error, kept.last_error), next_retry_at = excluded.next_retry_at,
    action = excluded.action, updated_at = excluded.updated_at
WHERE kept.updated_at <= excluded.updated_at;

-- name: job_logs
-- Newest first; a filter that is NULL filters nothing. `before` is where the page before ended.
SELECT id, service, queue, message_id, correlation_id, idempotency_key, status, attempts, last_error, next_retry_at,
       action, created_at, updated_at, (extract(epoch FROM updated_at) * 1000000)::bigint AS place
FROM job_logs
WHERE (:queue::text IS NULL OR queue = :queue) AND (:status::text IS NULL OR status = :status)
  AND (:correlation_id::text IS NULL OR correlation_id = :correlation_id) AND (:idempotency_key::text IS NULL OR
      idempotency_key = :idempotency_key)
  AND (:before_us::bigint IS NULL OR (updated_at, id)
       < (timestamptz 'epoch' + :before_us::float8 * interval '1 microsecond', :before_id::bigint))
ORDER BY updated_at DESC, id DESC
LIMIT :limit;

-- name: begin_effect
-- Race: two messages ask for one effect at once, or one message's second run meets its first one's mark.
--   PRIMARY KEY            one of them inserts
--   the WHERE              the other takes the key over only from its own message or from a dead run; done stays done
INSERT INTO job_effects AS kept (effect_key, holder, held_until)
VALUES (:key, :holder, clock_timestamp() + make_interval(secs => :seconds))
ON CONFLICT (effect_key) DO UPDATE
SET holder = excluded.holder, held_until = excluded.held_until
WHERE kept.done_at IS NULL AND (kept.holder = excluded.holder OR kept.held_until <= clock_timestamp())
RETURNING TRUE AS begun;

-- name: effect_done
SELECT done_at IS NOT NULL AS done FROM job_effects WHERE effect_key = :key;

-- name: finish_effect
-- Race: a run that overslept finishes what another has taken over: the effect did run, so the key stays done.
UPDATE job_effects SET done_at = clock_timestamp() WHERE effect_key = :key AND done_at IS NULL;

-- name: abandon_effect
-- Race: a run that failed must not take away the mark of the one that took over.
DELETE FROM job_effects WHERE effect_key = :key AND holder = :holder AND done_at IS NULL;

-- name: prune_jobs
-- In bounded batches: no statement waits behind a long delete.
DELETE FROM job_logs WHERE id = ANY(ARRAY(
    SELECT id FROM job_logs WHERE updated_at < clock_timestamp() - make_interval(secs => :older_than_seconds)
    ORDER BY updated_at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING id;

-- name: prune_effects
DELETE FROM job_effects WHERE effect_key = ANY(ARRAY(
    SELECT effect_key FROM job_effects WHERE done_at < clock_timestamp() - make_interval(secs => :older_than_seconds)
    LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1 AS pruned;
