-- Statements of history: endings in the order they were written, kept by one process at a time.

-- name: take_history
-- Races: other processes that want to keep history, and one that died while it did.
--   held_until              the lease; its end makes room for the next.
--   owner                   the holder takes it again without waiting.
--   BEGIN IMMEDIATE         no other change is under way, so that every later one reads a later clock.
--   ON CONFLICT             the first of all makes the row; where nobody keeps history, there is none.
INSERT INTO history_cursor (only_row, changed_at, notification_id, route_id, owner, held_until)
VALUES (1, 0, '', '', :owner, :now + CAST(:lease_seconds * 1000 AS INTEGER))
ON CONFLICT (only_row) DO UPDATE SET owner = excluded.owner, held_until = excluded.held_until
WHERE history_cursor.owner = excluded.owner OR history_cursor.held_until <= :now
RETURNING changed_at * 1000 AS changed_us, notification_id, route_id;

-- name: history_horizon
-- The one writer's clock grows with every commit: nothing under way can have read an earlier time.
SELECT (:now - CAST(round(:lag_seconds * 1000) AS INTEGER)) * 1000 AS until_us;

-- name: endings
-- Race: a route changes again after it was read. It then stands further on in this order and comes again.
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

-- name: advance_history
-- Race: the lease ran out and another process has gone on from the old place, or an operator has set it back.
--   owner                   only the present holder may say how far history has come.
UPDATE history_cursor SET changed_at = :changed_us / 1000, notification_id = :notification_id, route_id = :route_id
WHERE owner = :owner RETURNING 1 AS moved;

-- name: rewind_history
-- Race: a holder is about to say how far it has come.
--   owner                   it is the holder no longer, and what it says changes nothing.
INSERT INTO history_cursor (only_row, changed_at, notification_id, route_id, owner, held_until)
VALUES (1, :changed_us / 1000, '', '', '', 0)
ON CONFLICT (only_row) DO UPDATE
SET changed_at = excluded.changed_at, notification_id = '', route_id = '', owner = '', held_until = 0;
