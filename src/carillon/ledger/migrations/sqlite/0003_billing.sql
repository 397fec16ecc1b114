-- What list queues need beside Redis: the life of every message, and effects that were already had.

-- part: queues
-- adopts: job_logs

-- Document 003's job log: one row per message, changed through its life.
CREATE TABLE job_logs (
    id              INTEGER PRIMARY KEY,
    service         TEXT NOT NULL,
    queue           TEXT NOT NULL,
    message_id      TEXT NOT NULL,
    correlation_id  TEXT,
    idempotency_key TEXT,
    -- received, processing, success, retry, failed, dead
    status          TEXT NOT NULL,
    attempts        INTEGER NOT NULL,
    last_error      TEXT,
    next_retry_at   INTEGER,
    action          TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    -- By the clock of the Redis that moved it: of two processes' rows the later one stays.
    updated_at      INTEGER NOT NULL,
    UNIQUE (queue, message_id)
);

CREATE INDEX job_logs_queue_status_idx ON job_logs (queue, status);
CREATE INDEX job_logs_correlation_idx ON job_logs (correlation_id);
CREATE INDEX job_logs_idempotency_idx ON job_logs (idempotency_key);
CREATE INDEX job_logs_updated_idx ON job_logs (updated_at);

-- part: queues

-- What handlers asked to be done once.
CREATE TABLE job_effects (
    effect_key TEXT PRIMARY KEY,
    -- The message on whose behalf it is being done; its own next run takes over.
    holder     TEXT NOT NULL,
    held_until INTEGER NOT NULL,
    done_at    INTEGER
);

CREATE INDEX job_effects_done_idx ON job_effects (done_at) WHERE done_at IS NOT NULL;
