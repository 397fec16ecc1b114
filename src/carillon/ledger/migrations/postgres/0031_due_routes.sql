-- Routes get tickets. Runs as 0012 does, while older processes accept and send: every statement may run again.
-- online

SET lock_timeout = '200ms';

-- Filled while the route stands in `due` or in a lease. Empty: it waits for its time, is held by its own columns, or has ended.
ALTER TABLE routes ADD COLUMN IF NOT EXISTS ticket bigint;

RESET lock_timeout;

-- What is open, in one of two orders: by ticket what stands in `due` or in a lease, and behind all tickets, by time, what waits for it. Each
-- claim gives tickets to what has become due, so what waits today gets them as it is claimed.
DROP INDEX CONCURRENTLY IF EXISTS routes_later_idx;

CREATE INDEX CONCURRENTLY routes_later_idx ON routes (ticket, lane, provider, next_attempt_at) WHERE next_attempt_at IS NOT NULL;

-- The turns of live streams, whose leases are in their rows as the table `notifications` shows them.
DROP INDEX CONCURRENTLY IF EXISTS routes_live_turns_idx;

CREATE INDEX CONCURRENTLY routes_live_turns_idx ON routes (lane, provider, turn, next_attempt_at) WHERE next_attempt_at IS NOT NULL AND channel = 'sse';

SET lock_timeout = '200ms';

DROP TRIGGER IF EXISTS route_left_due ON routes;

CREATE TRIGGER route_left_due AFTER UPDATE ON routes FOR EACH ROW
    WHEN (OLD.ticket IS NOT NULL AND NEW.ticket = OLD.ticket AND (
        NEW.next_attempt_at IS DISTINCT FROM OLD.next_attempt_at OR NEW.claim_token IS NOT NULL OR NEW.lane <> OLD.lane
        OR NEW.provider <> OLD.provider OR NEW.grp <> OLD.grp OR NEW.status NOT IN ('pending', 'failed')))
    EXECUTE FUNCTION route_left_due();

DROP TRIGGER IF EXISTS route_gone ON routes;

CREATE TRIGGER route_gone AFTER DELETE ON routes FOR EACH ROW WHEN (OLD.ticket IS NOT NULL) EXECUTE FUNCTION route_left_due();

RESET lock_timeout;

DROP INDEX CONCURRENTLY IF EXISTS routes_due_idx;

ALTER INDEX routes_later_idx RENAME TO routes_due_idx;

-- Who holds which route, since when and until when, and which attempt it is: under a lease, or in the route's own row.
CREATE OR REPLACE VIEW routes_held AS
SELECT r.notification_id, r.route_id, r.ticket AS claim_token, l.owner AS held_by, l.claimed_at AS held_since,
       l.expires_at AS held_until, r.attempt_count + 1 AS held_attempt
FROM leases l CROSS JOIN LATERAL unnest(l.tickets) AS t (ticket) JOIN routes r ON r.ticket = t.ticket
WHERE r.next_attempt_at IS NOT NULL AND r.status IN ('pending', 'failed')
UNION ALL
SELECT notification_id, route_id, claim_token, lease_owner, claimed_at, next_attempt_at, attempt_count
FROM routes
WHERE claim_token IS NOT NULL AND status IN ('pending', 'failed');
