-- Statements of the audit log.

-- name: write_audit
-- Race: copies of one message end on several workers at once.
--   audit_key UNIQUE        the second insert finds the first one's row and writes nothing.
INSERT INTO audit_logs (audit_key, trace_id, user_id, notification_type, template_id, status, metadata, created_at)
SELECT row.*, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::jsonb[]) AS row
ON CONFLICT (audit_key) DO NOTHING;
