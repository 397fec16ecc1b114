-- A table job_logs that was there: its rows stay, and it gets what document 003 plans for it.

-- made: id integer
ALTER TABLE job_logs ADD COLUMN id INTEGER;

-- column: service text, varchar
ALTER TABLE job_logs ADD COLUMN service TEXT NOT NULL DEFAULT '';

-- column: queue text, varchar
ALTER TABLE job_logs ADD COLUMN queue TEXT;

-- column: message_id text, varchar
ALTER TABLE job_logs ADD COLUMN message_id TEXT;

-- column: correlation_id text, varchar
ALTER TABLE job_logs ADD COLUMN correlation_id TEXT;

-- column: idempotency_key text, varchar
ALTER TABLE job_logs ADD COLUMN idempotency_key TEXT;

-- column: status text, varchar
ALTER TABLE job_logs ADD COLUMN status TEXT NOT NULL DEFAULT '';

-- column: last_error text, varchar
ALTER TABLE job_logs ADD COLUMN last_error TEXT;

-- column: action text, varchar
ALTER TABLE job_logs ADD COLUMN action TEXT NOT NULL DEFAULT '';

-- column: attempts integer, bigint
ALTER TABLE job_logs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;

-- column: next_retry_at integer, bigint
ALTER TABLE job_logs ADD COLUMN next_retry_at INTEGER;

-- column: created_at integer, bigint
ALTER TABLE job_logs ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;

-- column: updated_at integer, bigint
ALTER TABLE job_logs ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;

-- One row per message: two rows of one message cannot be adopted.
-- unique: queue, message_id
SELECT queue, message_id FROM job_logs WHERE queue IS NOT NULL AND message_id IS NOT NULL
GROUP BY queue, message_id HAVING count(*) > 1 LIMIT 1;

CREATE UNIQUE INDEX IF NOT EXISTS job_logs_queue_message_id_key ON job_logs (queue, message_id);

CREATE INDEX IF NOT EXISTS job_logs_queue_status_idx ON job_logs (queue, status);

CREATE INDEX IF NOT EXISTS job_logs_correlation_idx ON job_logs (correlation_id);

CREATE INDEX IF NOT EXISTS job_logs_idempotency_idx ON job_logs (idempotency_key);

CREATE INDEX IF NOT EXISTS job_logs_updated_idx ON job_logs (updated_at);
