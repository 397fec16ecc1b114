-- Retention finds old rows of the audit log by their age.

-- part: audit
-- online

DROP INDEX CONCURRENTLY IF EXISTS audit_logs_created_idx;

CREATE INDEX CONCURRENTLY audit_logs_created_idx ON audit_logs (created_at);
