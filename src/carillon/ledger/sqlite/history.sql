-- What the keeper of history reads: the routes that have ended, in the order of their last change, and the place it has reached.

-- name: take_history
-- Races: other processes that want to keep history, and a keeper that died.
--   held_until              the lease; when it ends, another process may take over.
--   owner                   the holder takes it again without waiting.
--   BEGIN IMMEDIATE         no other change is under way, so that every later one reads a later clock.
--   ON CONFLICT             the first process makes the row; without a history keeper there is no row.
INSERT INTO history_cursor (only_row, changed_at, notification_id, route_id, owner, held_until)
VALUES (1, 0, '', '', :owner, :now + CAST(:lease_seconds * 1000 AS INTEGER))
ON CONFLICT (only_row) DO UPDATE SET owner = excluded.owner, held_until = excluded.held_until
WHERE history_cursor.owner = excluded.owner OR history_cursor.held_until <= :now
RETURNING changed_at * 1000 AS changed_us, notification_id, route_id;

-- name: history_horizon
-- The one writer's clock grows with every commit: nothing under way can have read an earlier time.
SELECT (:now - CAST(round(:lag_seconds * 1000) AS INTEGER)) * 1000 AS until_us;

-- name: endings
-- Race: a route changes again after it was read. It then moves on in this order and is read again.
SELECT r.updated_at * 1000 AS changed_us, r.notification_id, r.route_id, n.notification_type, n.producer, n.tenant_id,
       n.user_id, r.channel, r.provider, r.lane, r.status, r.attempt_count AS attempts,
       CASE WHEN r.status <> 'published' THEN r.last_error_classification END AS error,
       n.accepted_at * 1000 AS accepted_us, n.scheduled_for * 1000 AS wanted_us,
       coalesce(r.published_at, r.dead_lettered_at, r.skipped_at, r.updated_at) * 1000 AS ended_us,
       r.delivered_at * 1000 AS delivered_us
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.next_attempt_at IS NULL AND r.status IN ('published', 'dead_letter', 'skipped')
  AND r.updated_at >= :changed_us / 1000 AND r.updated_at < :until_us / 1000
  AND (r.updated_at, r.notification_id, r.route_id) > (:changed_us / 1000, :notification_id, :route_id)
ORDER BY r.updated_at, r.notification_id, r.route_id
LIMIT :limit;

-- name: still_there
SELECT notification_id FROM records WHERE notification_id IN (SELECT value FROM json_each(:notification_ids));

-- name: advance_history
-- Race: the lease expired and another process continued from the old place, or an operator moved it back.
--   owner                   only the current holder may move the place.
UPDATE history_cursor SET changed_at = :changed_us / 1000, notification_id = :notification_id, route_id = :route_id
WHERE owner = :owner RETURNING 1 AS moved;

-- name: rewind_history
-- Race: a holder is about to move the place.
--   owner                   it is no longer the holder, and its update changes nothing.
INSERT INTO history_cursor (only_row, changed_at, notification_id, route_id, owner, held_until)
VALUES (1, :changed_us / 1000, '', '', '', 0)
ON CONFLICT (only_row) DO UPDATE
SET changed_at = excluded.changed_at, notification_id = '', route_id = '', owner = '', held_until = 0;
