-- Statements of history: endings in the order they were written, kept by one process at a time.

-- name: take_history
-- Races: other processes that want to keep history, and one that died while it did.
--   held_until              the lease; its end makes room for the next.
--   owner                   the holder takes it again without waiting.
--   ON CONFLICT             the first of all makes the row; where nobody keeps history, there is none.
INSERT INTO history_cursor AS h (changed_at, notification_id, route_id, owner, held_until)
VALUES ('epoch', '', '', :owner, clock_timestamp() + :lease_seconds::float8 * interval '1 second')
ON CONFLICT (only_row) DO UPDATE SET owner = excluded.owner, held_until = excluded.held_until
WHERE h.owner = excluded.owner OR h.held_until <= clock_timestamp()
RETURNING (extract(epoch FROM changed_at) * 1000000)::bigint AS changed_us, notification_id, route_id;

-- name: history_horizon
-- Race: a change has read the clock and is not committed yet, so that it turns up behind what was read meanwhile.
--   xact_start              nothing that is still under way can have read an earlier time than its own beginning.
--   application_name        only our own connections change routes, and vacuuming changes no time.
SELECT (extract(epoch FROM least(clock_timestamp(), min(xact_start)) - :lag_seconds::float8 * interval '1 second')
        * 1000000)::bigint AS until_us
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND application_name LIKE 'carillon-%' AND application_name <> 'carillon-vacuum';

-- name: endings
-- Race: a route changes again after it was read. It then stands further on in this order and comes again.
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

-- name: advance_history
-- Race: the lease ran out and another process has gone on from the old place, or an operator has set it back.
--   owner                   only the present holder may say how far history has come.
UPDATE history_cursor
SET changed_at = timestamptz 'epoch' + :changed_us::float8 * interval '1 microsecond',
    notification_id = :notification_id, route_id = :route_id
WHERE owner = :owner RETURNING 1 AS moved;

-- name: rewind_history
-- Race: a holder is about to say how far it has come.
--   owner                   it is the holder no longer, and what it says changes nothing.
INSERT INTO history_cursor (changed_at, notification_id, route_id, owner, held_until)
VALUES (timestamptz 'epoch' + :changed_us::float8 * interval '1 microsecond', '', '', '', 'epoch')
ON CONFLICT (only_row) DO UPDATE
SET changed_at = excluded.changed_at, notification_id = '', route_id = '', owner = '', held_until = 'epoch';
