-- A table audit_logs that was there: its rows stay, and it gets what the worker needs beside document 000's columns.
-- `column` names the types that fit and is followed by what adds a missing column.

-- column: trace_id text, character varying
ALTER TABLE audit_logs ADD COLUMN trace_id text NOT NULL DEFAULT '';

-- column: user_id text, character varying
ALTER TABLE audit_logs ADD COLUMN user_id text NOT NULL DEFAULT '';

-- column: notification_type text, character varying
ALTER TABLE audit_logs ADD COLUMN notification_type text NOT NULL DEFAULT '';

-- column: template_id text, character varying
ALTER TABLE audit_logs ADD COLUMN template_id text;

-- column: status text, character varying
ALTER TABLE audit_logs ADD COLUMN status text NOT NULL DEFAULT '';

-- column: metadata jsonb, json
ALTER TABLE audit_logs ADD COLUMN metadata jsonb;

-- column: created_at timestamp with time zone, timestamp without time zone
ALTER TABLE audit_logs ADD COLUMN created_at timestamptz NOT NULL DEFAULT clock_timestamp();

-- made: audit_id bigint, integer
ALTER TABLE audit_logs ADD COLUMN audit_id bigint GENERATED ALWAYS AS IDENTITY;

-- column: audit_key text
ALTER TABLE audit_logs ADD COLUMN audit_key text;

-- A text of any length must fit: this changes no row.
-- widened: trace_id character varying
ALTER TABLE audit_logs ALTER COLUMN trace_id TYPE text;

-- widened: user_id character varying
ALTER TABLE audit_logs ALTER COLUMN user_id TYPE text;

-- widened: notification_type character varying
ALTER TABLE audit_logs ALTER COLUMN notification_type TYPE text;

-- widened: template_id character varying
ALTER TABLE audit_logs ALTER COLUMN template_id TYPE text;

-- widened: status character varying
ALTER TABLE audit_logs ALTER COLUMN status TYPE text;

CREATE UNIQUE INDEX IF NOT EXISTS audit_logs_audit_key_key ON audit_logs (audit_key);

CREATE INDEX IF NOT EXISTS audit_logs_trace_idx ON audit_logs (trace_id);
