-- A table audit_logs that was there: its rows stay, and it gets what the worker needs beside document 000's columns.

-- column: trace_id text, varchar
ALTER TABLE audit_logs ADD COLUMN trace_id TEXT NOT NULL DEFAULT '';

-- column: user_id text, varchar
ALTER TABLE audit_logs ADD COLUMN user_id TEXT NOT NULL DEFAULT '';

-- column: notification_type text, varchar
ALTER TABLE audit_logs ADD COLUMN notification_type TEXT NOT NULL DEFAULT '';

-- column: template_id text, varchar
ALTER TABLE audit_logs ADD COLUMN template_id TEXT;

-- column: status text, varchar
ALTER TABLE audit_logs ADD COLUMN status TEXT NOT NULL DEFAULT '';

-- column: metadata text, json
ALTER TABLE audit_logs ADD COLUMN metadata TEXT;

-- Milliseconds, as everywhere in this dialect.
-- column: created_at integer, bigint
ALTER TABLE audit_logs ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;

-- No key can be added to a table that is there; the rowid serves.
-- made: audit_id integer
ALTER TABLE audit_logs ADD COLUMN audit_id INTEGER;

-- column: audit_key text
ALTER TABLE audit_logs ADD COLUMN audit_key TEXT;

CREATE UNIQUE INDEX IF NOT EXISTS audit_logs_audit_key_key ON audit_logs (audit_key);

CREATE INDEX IF NOT EXISTS audit_logs_trace_idx ON audit_logs (trace_id);
