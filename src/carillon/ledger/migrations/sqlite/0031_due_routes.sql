-- Routes get tickets.

-- Filled while the route stands in `due` or in a lease. Empty: it waits for its time, is held by its own columns, or has ended.
ALTER TABLE routes ADD COLUMN ticket INTEGER;

-- What is open, in one of two orders: by ticket what stands in `due` or in a lease, and before all tickets, by time, what waits for it. Each
-- claim gives tickets to what has become due, so what waits today gets them as it is claimed.
DROP INDEX routes_due_idx;
CREATE INDEX routes_due_idx ON routes (ticket, lane, provider, next_attempt_at) WHERE next_attempt_at IS NOT NULL;

-- The turns of live streams, whose leases are in their rows as the table `notifications` shows them.
CREATE INDEX routes_live_turns_idx ON routes (lane, provider, turn, next_attempt_at)
    WHERE next_attempt_at IS NOT NULL AND channel = 'sse';

-- What changes a route without knowing tickets, by hand or from an older release, takes it out of `due`: the route alone then says
-- when it is due and who holds it. A route that a worker holds under a lease is claimed by nobody else, and another time, lane or
-- provider is no reason to take it from its worker.
CREATE TRIGGER route_left_due AFTER UPDATE OF next_attempt_at, claim_token, lane, provider, grp, status ON routes
    WHEN OLD.ticket IS NOT NULL AND NEW.ticket = OLD.ticket AND (
        NEW.next_attempt_at IS NOT OLD.next_attempt_at OR NEW.claim_token IS NOT NULL OR NEW.lane <> OLD.lane
        OR NEW.provider <> OLD.provider OR NEW.grp <> OLD.grp OR NEW.status NOT IN ('pending', 'failed'))
BEGIN
    SELECT RAISE(ABORT, 'a worker of a newer release holds the route')
    WHERE NEW.claim_token IS NOT NULL AND EXISTS (
        SELECT 1 FROM leases l, json_each(l.tickets) t
        WHERE t.value = OLD.ticket AND l.expires_at > CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER));
    UPDATE routes SET ticket = NULL
    WHERE rowid = NEW.rowid AND (
        NEW.claim_token IS NOT NULL OR NEW.status NOT IN ('pending', 'failed') OR EXISTS (
            SELECT 1 FROM due d WHERE d.lane = OLD.lane AND d.provider = OLD.provider AND d.grp = OLD.grp
                AND d.due_at = OLD.next_attempt_at AND d.ticket = OLD.ticket));
    DELETE FROM due WHERE lane = OLD.lane AND provider = OLD.provider AND grp = OLD.grp AND due_at = OLD.next_attempt_at
        AND ticket = OLD.ticket;
END;

CREATE TRIGGER route_gone AFTER DELETE ON routes WHEN OLD.ticket IS NOT NULL
BEGIN
    DELETE FROM due WHERE lane = OLD.lane AND provider = OLD.provider AND grp = OLD.grp AND due_at = OLD.next_attempt_at
        AND ticket = OLD.ticket;
END;

-- Who holds which route, since when and until when, and which attempt it is: under a lease, or in the route's own row.
CREATE VIEW routes_held AS
SELECT r.notification_id, r.route_id, r.ticket AS claim_token, l.owner AS held_by, l.claimed_at AS held_since,
       l.expires_at AS held_until, r.attempt_count + 1 AS held_attempt
FROM leases l CROSS JOIN json_each(l.tickets) t CROSS JOIN routes r ON r.ticket = t.value
WHERE r.next_attempt_at IS NOT NULL AND r.status IN ('pending', 'failed')
UNION ALL
SELECT notification_id, route_id, claim_token, lease_owner, claimed_at, next_attempt_at, attempt_count
FROM routes
WHERE claim_token IS NOT NULL AND status IN ('pending', 'failed');
