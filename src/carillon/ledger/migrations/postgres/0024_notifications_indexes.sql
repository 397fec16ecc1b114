-- Indexes of live notifications under the names and words of their table, so that the blueprint's own statements are fast. The
-- expressions are those of the view, word for word. Other channels pay nothing: every index is of live notifications alone.

-- part: streams
-- online

-- By id.
DROP INDEX CONCURRENTLY IF EXISTS routes_live_id_idx;

CREATE INDEX CONCURRENTLY routes_live_id_idx ON routes ((CASE WHEN notification_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN notification_id
            ELSE md5(notification_id) END::uuid))
    WHERE channel = 'sse';

-- By person.
DROP INDEX CONCURRENTLY IF EXISTS routes_live_user_idx;

CREATE INDEX CONCURRENTLY routes_live_user_idx ON routes ((regexp_replace(recipient_ref, '^user:', ''))) WHERE channel = 'sse';

-- What a picker may claim, most urgent first; the condition follows from the claim's own.
DROP INDEX CONCURRENTLY IF EXISTS routes_live_claim_idx;

CREATE INDEX CONCURRENTLY routes_live_claim_idx ON routes (
    (CASE lane WHEN 1 THEN 'HIGH'::notification_priority WHEN 2 THEN 'MEDIUM'::notification_priority
            ELSE 'LOW'::notification_priority END), created_at)
    WHERE channel = 'sse' AND (
        (CASE WHEN status = 'published' AND delivered_at IS NOT NULL THEN 'delivered'
            WHEN status = 'published' THEN 'pushed'
            WHEN status IN ('dead_letter', 'skipped') OR attempt_count > max_attempts THEN 'failed'
            WHEN claim_token IS NOT NULL THEN 'processing'
            ELSE 'not_pushed' END) = 'not_pushed'
        OR (CASE WHEN status = 'published' AND delivered_at IS NOT NULL THEN 'delivered'
            WHEN status = 'published' THEN 'pushed'
            WHEN status IN ('dead_letter', 'skipped') OR attempt_count > max_attempts THEN 'failed'
            WHEN claim_token IS NOT NULL THEN 'processing'
            ELSE 'not_pushed' END) = 'processing');

-- Leases by their end.
DROP INDEX CONCURRENTLY IF EXISTS routes_live_lease_idx;

CREATE INDEX CONCURRENTLY routes_live_lease_idx ON routes ((CASE WHEN claim_token IS NOT NULL THEN next_attempt_at END))
    WHERE channel = 'sse' AND (CASE WHEN status = 'published' AND delivered_at IS NOT NULL THEN 'delivered'
            WHEN status = 'published' THEN 'pushed'
            WHEN status IN ('dead_letter', 'skipped') OR attempt_count > max_attempts THEN 'failed'
            WHEN claim_token IS NOT NULL THEN 'processing'
            ELSE 'not_pushed' END) = 'processing';

-- The planner does not learn from partial indexes how many rows an id or a person has.
CREATE STATISTICS IF NOT EXISTS routes_live_ids ON (CASE WHEN notification_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN notification_id
            ELSE md5(notification_id) END::uuid) FROM routes;

CREATE STATISTICS IF NOT EXISTS routes_live_users ON (regexp_replace(recipient_ref, '^user:', '')) FROM routes;
