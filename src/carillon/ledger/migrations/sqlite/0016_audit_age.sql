-- Retention finds old rows of the audit log by their age.

-- part: audit

CREATE INDEX audit_logs_created_idx ON audit_logs (created_at);
