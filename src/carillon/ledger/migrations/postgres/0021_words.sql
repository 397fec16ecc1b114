-- The table NotificationQueue with its vendor's last word as the status, and every call counted.

-- part: api

CREATE OR REPLACE VIEW "NotificationQueue" AS
SELECT n.notification_id AS "Id", n.tenant_id AS "TenantId", n.user_id AS "UserId", r.channel AS "Channel",
       n.notification_type AS "TemplateKey",
       CASE n.priority WHEN 1 THEN 'high' WHEN 2 THEN 'normal' ELSE 'low' END AS "Priority",
       CASE WHEN r.status IN ('pending', 'failed') THEN 'queued' WHEN r.status = 'dead_letter' THEN 'failed'
            WHEN r.status = 'skipped' THEN 'skipped' WHEN r.opened_at IS NOT NULL THEN 'opened'
            WHEN r.delivered_at IS NULL AND r.receipt IN ('queued', 'sent') THEN r.receipt ELSE 'delivered'
       END AS "Status",
       r.resolved_locale AS "Locale", r.address AS "Recipient",
       greatest(r.attempt_count, (
           SELECT count(*)::integer FROM attempts_told a WHERE a.notification_id = r.notification_id AND a.route_id = r.route_id)
       ) AS "AttemptCount",
       CASE WHEN r.status = 'dead_letter' THEN r.last_error_message END AS "LastError",
       r.provider AS "Provider", r.provider_message_id AS "ProviderMessageId", n.accepted_at AS "CreatedAt",
       r.published_at AS "SentAt",
       CASE WHEN r.receipt IN ('queued', 'sent') THEN r.delivered_at ELSE coalesce(r.delivered_at, r.published_at)
       END AS "DeliveredAt",
       r.dead_lettered_at AS "FailedAt", r.next_attempt_at AS "NextAttemptAt"
FROM records n JOIN routes r ON r.notification_id = n.notification_id;
