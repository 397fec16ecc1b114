-- Statements of the audit log.

-- name: write_audit
INSERT INTO audit_logs (audit_key, trace_id, user_id, notification_type, template_id, status, metadata, created_at)
VALUES (:audit_key, :trace_id, :user_id, :notification_type, :template_id, :status, :metadata, :now)
ON CONFLICT (audit_key) DO NOTHING;
