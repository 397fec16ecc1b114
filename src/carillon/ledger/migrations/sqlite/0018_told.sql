-- A plain success is told by its route, without a row in `attempts`.

-- The claim whose success the route tells, and how long the call took; empty for every other route, and for those of today.
ALTER TABLE routes ADD COLUMN finished_by INTEGER;
ALTER TABLE routes ADD COLUMN took_ms REAL;

-- A receipt names a vendor's message.
CREATE INDEX routes_message_idx ON routes (provider_message_id)
    WHERE finished_by IS NOT NULL AND provider_message_id IS NOT NULL;

-- Every attempt: the rows of `attempts`, and the successes that routes tell.
CREATE VIEW attempts_told AS
SELECT attempt_id, notification_id, route_id, attempt, provider, outcome, classification, error, provider_message_id,
       started_at, duration_ms, verdict, delay_ms, settled
FROM attempts
UNION ALL
SELECT finished_by, notification_id, route_id, attempt_count, provider, 'sent', NULL, NULL, provider_message_id,
       published_at - CAST(round(took_ms) AS INTEGER), took_ms, 'finish', NULL, settled_by
FROM routes
WHERE finished_by IS NOT NULL;
