-- Statements of delivery while the caller waits.

-- name: enrolled_ticket
-- only: PostgreSQL leases in the statement that enrols
SELECT lane, provider, grp, next_attempt_at AS due_at, ticket FROM routes
WHERE notification_id = :notification_id AND route_id = :route_id AND status = 'pending' AND ticket IS NOT NULL;

-- name: take_due
-- only: PostgreSQL lays no row in `due` for a route that it leases
DELETE FROM due WHERE lane = :lane AND provider = :provider AND grp = :grp AND due_at = :due_at AND ticket = :ticket;

-- name: own_lease
-- only: PostgreSQL finds it in `claim_enrolled`
--   lease_id                the lease of a first claim has its ticket's number. What our own worker has claimed since is being sent.
SELECT lease_id FROM leases WHERE owner = :owner AND lease_id = :ticket;

-- name: ticket_anew
-- only: PostgreSQL does it in `claim_enrolled`
-- Race: our own repeat after a COMMIT whose answer was lost: what came of the first try changes nothing any more.
UPDATE routes SET ticket = :anew, updated_at = :now WHERE ticket = :ticket AND next_attempt_at IS NOT NULL;

-- name: claim_enrolled
-- For routes of live streams, whose leases are in their rows.
-- Races: none; it runs in the transaction of `enrol`, and nobody else ever sees these routes free.
--   status                  a route to a suppressed address was enrolled as skipped and is not claimed.
--   next_attempt_at         a scheduled route is not claimed; one that our own earlier try has leased is.
UPDATE routes
SET claim_token = :token, lease_owner = :owner, attempt_count = 1, next_attempt_at = :lease_until, turn = NULL,
    updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id AND status = 'pending' AND ticket IS NULL
  AND (next_attempt_at <= :now OR lease_owner = :owner);

-- name: queue_unclaimed
-- Race: a delivery that is under way.
--   lease_owner             what a worker left behind is no released route: its sweep ends it.
--   claim_token, ticket     a claimed route stays; only a released one is queued. The trigger of `routes` takes it out of `due`.
UPDATE routes SET lane = ?2, updated_at = ?3
WHERE lane = ?1 AND next_attempt_at IS NOT NULL AND claim_token IS NULL
  AND (ticket IS NULL OR (lease_owner IS NULL AND ticket IN (SELECT d.ticket FROM due d WHERE d.lane = ?1)));

-- name: waits_unclaimed
-- only: PostgreSQL looks and moves in one statement without a lock of everything
SELECT EXISTS (
    SELECT 1 FROM due d JOIN routes r ON r.ticket = d.ticket AND r.next_attempt_at IS NOT NULL
    WHERE d.lane = ?1 AND r.lease_owner IS NULL) OR EXISTS (
    SELECT 1 FROM routes WHERE lane = ?1 AND next_attempt_at IS NOT NULL AND ticket IS NULL AND claim_token IS NULL);
