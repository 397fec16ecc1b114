-- Live streams: each person's log of what was pushed to them, who reads it where, and document 004's table as a view.

-- When the present lease was taken; its renewals leave this alone.
ALTER TABLE routes ADD COLUMN claimed_at INTEGER;

-- part: streams

-- What is not told to somebody yet: found when they come, and before something later is told. Nobody else's acceptance
-- pays for it.
CREATE INDEX routes_held_idx ON routes (recipient_ref) WHERE provider = 'sse' AND next_attempt_at IS NOT NULL;

-- Leases of live streams by their end, for whoever takes back what a dead process held.
CREATE INDEX routes_leased_idx ON routes (next_attempt_at) WHERE channel = 'sse' AND claim_token IS NOT NULL;

-- One row a person.
CREATE TABLE streams (
    user_id    TEXT PRIMARY KEY,
    last_seq   INTEGER NOT NULL,
    -- Retention has taken something up to here.
    pruned_seq INTEGER NOT NULL DEFAULT 0
);

-- No foreign key, as in the other dialect. Retention deletes these rows itself.
CREATE TABLE stream_entries (
    user_id         TEXT NOT NULL,
    seq             INTEGER NOT NULL,
    notification_id TEXT NOT NULL,
    route_id        TEXT NOT NULL,
    pushed_at       INTEGER NOT NULL,
    delivered_at    INTEGER,
    read_at         INTEGER,
    PRIMARY KEY (user_id, seq),
    -- A repeat of the same push finds its number here.
    CONSTRAINT stream_entries_route UNIQUE (notification_id, route_id)
);

-- Who is connected where; a replica that is not alive any more is connected to nobody.
CREATE TABLE presence (
    user_id TEXT NOT NULL,
    replica TEXT NOT NULL,
    PRIMARY KEY (user_id, replica)
);

CREATE INDEX presence_replica_idx ON presence (replica);

CREATE TABLE replicas (
    replica     TEXT PRIMARY KEY,
    alive_until INTEGER NOT NULL
);

-- Document 004's table under its own names and words, times as Unix milliseconds. There is no enumeration here:
-- ORDER BY priority_rank is the order of urgency.
CREATE VIEW notifications AS
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
       r.lease_owner AS processing_by,
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
       r.last_error_message AS last_error,
       e.read_at IS NOT NULL AS is_read,
       n.idempotency_key AS event_id,
       e.seq,
       r.claim_token,
       n.priority AS priority_rank
FROM records n
JOIN routes r ON r.notification_id = n.notification_id
LEFT JOIN stream_entries e ON e.notification_id = r.notification_id AND e.route_id = r.route_id
WHERE r.channel = 'sse';
