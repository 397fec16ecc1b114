-- Statements of history in ClickHouse; :days is a whole number of ours, {name:Type} a bound parameter.

-- name: table
-- A crash copies endings again, and a route may end more than once: of equal keys the highest version counts. Merging
-- happens inside a partition only, so the partition is by a time that never changes.
CREATE TABLE IF NOT EXISTS notification_history (
    notification_id   String,
    route             UInt64,
    notification_type LowCardinality(String),
    producer          LowCardinality(String),
    tenant_id         LowCardinality(String),
    user_id           String,
    channel           LowCardinality(String),
    provider          LowCardinality(String),
    lane              UInt8,
    status            LowCardinality(String),
    attempts          UInt16,
    error             LowCardinality(String),
    accepted_at       DateTime64(3, 'UTC'),
    ended_at          DateTime64(3, 'UTC'),
    delivered_at      Nullable(DateTime64(3, 'UTC')),
    latency_ms        UInt64,
    version           UInt64
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMMDD(accepted_at)
ORDER BY (notification_type, channel, notification_id, route)
TTL toDateTime(accepted_at) + toIntervalDay(:days);

-- name: engine
SELECT engine_full FROM system.tables WHERE database = currentDatabase() AND name = 'notification_history';

-- name: keep_days
-- ClickHouse looks through what is there already in the background.
ALTER TABLE notification_history MODIFY TTL toDateTime(accepted_at) + toIntervalDay(:days);

-- name: volume
SELECT if({by:String} = 'day', formatDateTime(ended_at, '%Y-%m-%d'), formatDateTime(ended_at, '%Y-%m-%dT%H:00Z')) AS name,
       count() AS total,
       countIf(status = 'published') AS published,
       countIf(delivered_at IS NOT NULL) AS delivered,
       countIf(status = 'dead_letter') AS dead_letter,
       countIf(status = 'skipped') AS skipped
FROM notification_history FINAL
WHERE ended_at >= now64(3) - toIntervalSecond({seconds:UInt64})
  AND ({channel:String} = '' OR channel = {channel:String})
  AND ({type:String} = '' OR notification_type = {type:String})
GROUP BY name
ORDER BY name;

-- name: latency
SELECT multiIf({by:String} = 'provider', provider, {by:String} = 'type', notification_type,
               {by:String} = 'hour', formatDateTime(ended_at, '%Y-%m-%dT%H:00Z'), channel) AS name,
       count() AS published,
       quantilesExact(0.5, 0.9, 0.95, 0.99)(latency_ms) AS percentiles,
       max(latency_ms) AS slowest
FROM notification_history FINAL
WHERE status = 'published' AND ended_at >= now64(3) - toIntervalSecond({seconds:UInt64})
  AND ({channel:String} = '' OR channel = {channel:String})
  AND ({type:String} = '' OR notification_type = {type:String})
GROUP BY name
ORDER BY name;

-- name: failures
SELECT multiIf({by:String} = 'type', notification_type, {by:String} = 'channel', channel,
               {by:String} = 'hour', formatDateTime(ended_at, '%Y-%m-%dT%H:00Z'), provider) AS name,
       count() AS total,
       countIf(status = 'dead_letter') AS failed,
       topKIf(1)(error, status = 'dead_letter') AS causes
FROM notification_history FINAL
WHERE status <> 'skipped' AND ended_at >= now64(3) - toIntervalSecond({seconds:UInt64})
  AND ({channel:String} = '' OR channel = {channel:String})
  AND ({type:String} = '' OR notification_type = {type:String})
GROUP BY name
HAVING failed > 0
ORDER BY if({by:String} = 'hour', 0, -toInt64(failed)), name;

-- name: forget
-- ClickHouse keeps the text of its mutations and queries: a salted hash names the person there.
--   mutations_sync          the answer comes when the lines are gone.
ALTER TABLE notification_history DELETE
WHERE tenant_id = {tenant:String} AND hex(SHA256(concat({salt:String}, user_id))) = {digest:String}
SETTINGS mutations_sync = 2;

-- name: forget_notifications
ALTER TABLE notification_history DELETE WHERE has({ids:Array(String)}, notification_id)
SETTINGS mutations_sync = 2;
