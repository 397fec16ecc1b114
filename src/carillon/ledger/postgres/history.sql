-- What the keeper of history reads: the routes that have ended, in the order of their last change, and the place it has reached.

-- name: take_history
-- Races: other processes that want to keep history, and a keeper that died.
--   held_until              the lease; when it ends, another process may take over.
--   owner                   the holder takes it again without waiting.
--   ON CONFLICT             the first process makes the row; without a history keeper there is no row.
INSERT INTO history_cursor AS h (changed_at, notification_id, route_id, owner, held_until)
VALUES ('epoch', '', '', :owner, clock_timestamp() + :lease_seconds::float8 * interval '1 second')
ON CONFLICT (only_row) DO UPDATE SET owner = excluded.owner, held_until = excluded.held_until
WHERE h.owner = excluded.owner OR h.held_until <= clock_timestamp()
RETURNING (extract(epoch FROM changed_at) * 1000000)::bigint AS changed_us, notification_id, route_id;

-- name: history_horizon
-- Race: a change has read the clock and is not committed yet: it becomes visible behind rows that were read meanwhile.
--   xact_start              an open transaction cannot have read a time before its own start.
--   application_name        only our own connections change routes, and vacuuming changes no time.
SELECT (extract(epoch FROM least(clock_timestamp(), min(xact_start)) - :lag_seconds::float8 * interval '1 second')
        * 1000000)::bigint AS until_us
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND application_name LIKE 'carillon-%' AND application_name <> 'carillon-vacuum';

-- name: endings
-- Race: a route changes again after it was read. It then moves on in this order and is read again.
SELECT (extract(epoch FROM r.updated_at) * 1000000)::bigint AS changed_us, r.notification_id, r.route_id,
       n.notification_type, n.producer, n.tenant_id, n.user_id, r.channel, r.provider, r.lane, r.status, r.attempt_count AS attempts,
       CASE WHEN r.status <> 'published' THEN r.last_error_classification END AS error,
       (extract(epoch FROM n.accepted_at) * 1000000)::bigint AS accepted_us,
       (extract(epoch FROM n.scheduled_for) * 1000000)::bigint AS wanted_us,
       (extract(epoch FROM coalesce(r.published_at, r.dead_lettered_at, r.skipped_at, r.updated_at)) * 1000000)::bigint
           AS ended_us,
       (extract(epoch FROM r.delivered_at) * 1000000)::bigint AS delivered_us
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.next_attempt_at IS NULL AND r.status IN ('published', 'dead_letter', 'skipped')
  AND r.updated_at >= timestamptz 'epoch' + :changed_us::float8 * interval '1 microsecond'
  AND r.updated_at < timestamptz 'epoch' + :until_us::float8 * interval '1 microsecond'
  AND (r.updated_at, r.notification_id, r.route_id)
      > (timestamptz 'epoch' + :changed_us::float8 * interval '1 microsecond', :notification_id, :route_id)
ORDER BY r.updated_at, r.notification_id, r.route_id
LIMIT :limit;

-- name: still_there
SELECT notification_id FROM records WHERE notification_id = ANY (:notification_ids::text[]);

-- name: advance_history
-- Race: the lease expired and another process continued from the old place, or an operator moved it back.
--   owner                   only the current holder may move the place.
UPDATE history_cursor
SET changed_at = timestamptz 'epoch' + :changed_us::float8 * interval '1 microsecond',
    notification_id = :notification_id, route_id = :route_id
WHERE owner = :owner RETURNING 1 AS moved;

-- name: rewind_history
-- Race: a holder is about to move the place.
--   owner                   it is no longer the holder, and its update changes nothing.
INSERT INTO history_cursor (changed_at, notification_id, route_id, owner, held_until)
VALUES (timestamptz 'epoch' + :changed_us::float8 * interval '1 microsecond', '', '', '', 'epoch')
ON CONFLICT (only_row) DO UPDATE
SET changed_at = excluded.changed_at, notification_id = '', route_id = '', owner = '', held_until = 'epoch';
