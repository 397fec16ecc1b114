-- What waits for a worker stands in a narrow table, and what a worker holds in another: a claim reads the wide row and leaves it alone.

-- One row for each route that is due and that nobody holds. `ticket` is the same number as in the route: it becomes the claim's token.
CREATE TABLE due (
    lane     smallint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    grp      bigint NOT NULL,
    due_at   timestamptz NOT NULL,
    ticket   bigint NOT NULL
) WITH (
    -- Every row dies young: clean up often, at full speed.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2,
    autovacuum_analyze_threshold = 50000
);

-- Turns: a claim skips from group to group, and takes the oldest of each.
CREATE INDEX due_turns_idx ON due (lane, provider, grp, due_at);

-- One row for each batch of claims. A group with a cap has rows of its own, from which a settlement takes its tickets: the tickets in them
-- are the places that are taken.
CREATE TABLE leases (
    lease_id   bigint PRIMARY KEY,
    grp        bigint,
    owner      text NOT NULL,
    claimed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    tickets    bigint[] NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX leases_expires_idx ON leases (expires_at);
CREATE INDEX leases_places_idx ON leases (grp) WHERE grp IS NOT NULL;

-- What changes a route without knowing tickets, by hand or from an older release, takes it out of `due`: the route alone then says
-- when it is due and who holds it. A route that a worker holds under a lease is claimed by nobody else.
CREATE FUNCTION route_left_due() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    waited boolean;
BEGIN
    DELETE FROM due d
    WHERE d.lane = OLD.lane AND d.provider = OLD.provider AND d.grp = OLD.grp AND d.due_at = OLD.next_attempt_at
      AND d.ticket = OLD.ticket;
    waited := FOUND;
    IF TG_OP = 'DELETE' THEN
        RETURN NULL;
    END IF;
    IF NOT waited AND NEW.claim_token IS NOT NULL AND EXISTS (
        SELECT FROM leases l WHERE l.expires_at > clock_timestamp() AND OLD.ticket = ANY (l.tickets)) THEN
        RAISE EXCEPTION 'a worker of a newer release holds the route % of %', OLD.route_id, OLD.notification_id
            USING ERRCODE = 'lock_not_available';
    END IF;
    -- Another time, lane or provider is no reason to take it from its worker.
    IF NOT waited AND NEW.claim_token IS NULL AND NEW.status IN ('pending', 'failed') THEN
        RETURN NULL;
    END IF;
    UPDATE routes r SET ticket = NULL
    WHERE r.notification_id = OLD.notification_id AND r.route_id = OLD.route_id AND r.ticket = OLD.ticket;
    RETURN NULL;
END $$;
