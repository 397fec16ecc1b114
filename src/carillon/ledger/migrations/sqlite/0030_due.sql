-- What waits for a worker stands in a narrow table, and what a worker holds in another: a claim reads the wide row and leaves it alone.

-- One row for each route that is due and that nobody holds. `ticket` is the same number as in the route: it becomes the claim's token.
CREATE TABLE due (
    lane     INTEGER NOT NULL,
    provider TEXT NOT NULL,
    grp      INTEGER NOT NULL,
    due_at   INTEGER NOT NULL,
    ticket   INTEGER NOT NULL,
    PRIMARY KEY (lane, provider, grp, due_at, ticket)
) WITHOUT ROWID;

-- One row for each batch of claims, `tickets` is a JSON list. A group with a cap has rows of its own, from which a settlement takes its
-- tickets: the tickets in them are the places that are taken.
CREATE TABLE leases (
    lease_id   INTEGER PRIMARY KEY,
    grp        INTEGER,
    owner      TEXT NOT NULL,
    claimed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    tickets    TEXT NOT NULL
);

CREATE INDEX leases_expires_idx ON leases (expires_at);
CREATE INDEX leases_places_idx ON leases (grp) WHERE grp IS NOT NULL;
