-- The table of live notifications: who pushed a row stays in it, and a pushed row has no error.

-- part: streams

-- The picker that pushed the entry: the route forgets its holder when it is settled.
ALTER TABLE stream_entries ADD COLUMN pushed_by TEXT;

DROP VIEW notifications;

CREATE VIEW IF NOT EXISTS notifications AS
SELECT n.notification_id,
       CASE WHEN r.recipient_ref LIKE 'user:%' THEN substr(r.recipient_ref, 6) ELSE r.recipient_ref END AS user_id,
       n.notification_type AS event_type,
       CASE n.priority WHEN 1 THEN 'HIGH' WHEN 2 THEN 'MEDIUM' ELSE 'LOW' END AS priority,
       n.payload_json AS payload,
       CASE WHEN r.status = 'published' AND r.delivered_at IS NOT NULL THEN 'delivered'
            WHEN r.status = 'published' THEN 'pushed'
            WHEN r.status IN ('dead_letter', 'skipped') OR r.attempt_count > r.max_attempts THEN 'failed'
            WHEN r.claim_token IS NOT NULL THEN 'processing'
            ELSE 'not_pushed' END AS status,
       CASE WHEN r.status = 'published' THEN coalesce(r.lease_owner, e.pushed_by) ELSE r.lease_owner END AS processing_by,
       CASE WHEN r.claim_token IS NOT NULL THEN coalesce(r.claimed_at, r.created_at) END AS processing_started_at,
       CASE WHEN r.claim_token IS NOT NULL THEN r.next_attempt_at END AS processing_lease_expires_at,
       min(r.max_attempts, max(0, r.attempt_count
           - CASE WHEN r.status = 'published' OR r.claim_token IS NOT NULL THEN 1 ELSE 0 END)) AS retry_count,
       n.accepted_at AS notification_received_timestamp,
       r.published_at AS notification_pushed_timestamp,
       max(0, r.published_at - n.accepted_at) AS processing_latency_ms,
       n.accepted_at AS created_at,
       max(r.updated_at, coalesce(e.read_at, 0)) AS updated_at,
       coalesce(n.occurred_at, n.accepted_at) AS event_timestamp,
       r.delivered_at AS notification_delivered_timestamp,
       CASE WHEN r.status <> 'published' THEN r.last_error_message END AS last_error,
       e.read_at IS NOT NULL AS is_read,
       n.idempotency_key AS event_id,
       e.seq,
       r.claim_token,
       n.priority AS priority_rank
FROM records n
JOIN routes r ON r.notification_id = n.notification_id
LEFT JOIN stream_entries e ON e.notification_id = r.notification_id AND e.route_id = r.route_id
WHERE r.channel = 'sse';
