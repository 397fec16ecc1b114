-- Statements of the audit log.

-- name: write_audit
-- Race: copies of one message end on several workers at once.
--   audit_key UNIQUE        the second insert finds the first one's row and writes nothing.
INSERT INTO audit_logs (audit_key, trace_id, user_id, notification_type, template_id, status, metadata, created_at)
SELECT row.*, clock_timestamp()
FROM unnest(:audit_key::text[], :trace_id::text[], :user_id::text[], :notification_type::text[], :template_id::text[],
    :status::text[], :metadata::jsonb[]) AS row
ON CONFLICT (audit_key) DO NOTHING;
