-- A table job_logs that was there: its rows stay, and it gets what document 003 plans for it.

-- made: id bigint, integer
ALTER TABLE job_logs ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY;

-- column: service text, character varying
ALTER TABLE job_logs ADD COLUMN service text NOT NULL DEFAULT '';

-- column: queue text, character varying
ALTER TABLE job_logs ADD COLUMN queue text;

-- column: message_id text, character varying
ALTER TABLE job_logs ADD COLUMN message_id text;

-- column: correlation_id text, character varying
ALTER TABLE job_logs ADD COLUMN correlation_id text;

-- column: idempotency_key text, character varying
ALTER TABLE job_logs ADD COLUMN idempotency_key text;

-- column: status text, character varying
ALTER TABLE job_logs ADD COLUMN status text NOT NULL DEFAULT '';

-- column: last_error text, character varying
ALTER TABLE job_logs ADD COLUMN last_error text;

-- column: action text, character varying
ALTER TABLE job_logs ADD COLUMN action text NOT NULL DEFAULT '';

-- column: attempts integer, bigint, smallint
ALTER TABLE job_logs ADD COLUMN attempts integer NOT NULL DEFAULT 0;

-- column: next_retry_at timestamp with time zone, timestamp without time zone
ALTER TABLE job_logs ADD COLUMN next_retry_at timestamptz;

-- column: created_at timestamp with time zone, timestamp without time zone
ALTER TABLE job_logs ADD COLUMN created_at timestamptz NOT NULL DEFAULT clock_timestamp();

-- column: updated_at timestamp with time zone, timestamp without time zone
ALTER TABLE job_logs ADD COLUMN updated_at timestamptz NOT NULL DEFAULT clock_timestamp();

-- A text of any length must fit: this changes no row.
-- widened: service character varying
ALTER TABLE job_logs ALTER COLUMN service TYPE text;

-- widened: queue character varying
ALTER TABLE job_logs ALTER COLUMN queue TYPE text;

-- widened: message_id character varying
ALTER TABLE job_logs ALTER COLUMN message_id TYPE text;

-- widened: correlation_id character varying
ALTER TABLE job_logs ALTER COLUMN correlation_id TYPE text;

-- widened: idempotency_key character varying
ALTER TABLE job_logs ALTER COLUMN idempotency_key TYPE text;

-- widened: status character varying
ALTER TABLE job_logs ALTER COLUMN status TYPE text;

-- widened: last_error character varying
ALTER TABLE job_logs ALTER COLUMN last_error TYPE text;

-- widened: action character varying
ALTER TABLE job_logs ALTER COLUMN action TYPE text;

-- One row per message: two rows of one message cannot be adopted.
-- unique: queue, message_id
SELECT queue, message_id FROM job_logs WHERE queue IS NOT NULL AND message_id IS NOT NULL
GROUP BY queue, message_id HAVING count(*) > 1 LIMIT 1;

CREATE UNIQUE INDEX IF NOT EXISTS job_logs_queue_message_id_key ON job_logs (queue, message_id);

CREATE INDEX IF NOT EXISTS job_logs_queue_status_idx ON job_logs (queue, status);

CREATE INDEX IF NOT EXISTS job_logs_correlation_idx ON job_logs (correlation_id);

CREATE INDEX IF NOT EXISTS job_logs_idempotency_idx ON job_logs (idempotency_key);

CREATE INDEX IF NOT EXISTS job_logs_updated_idx ON job_logs (updated_at);
