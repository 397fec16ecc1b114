-- What a fleet knows about the targets of its calls: the breakers of endpoints, and how fast calls may start.

-- A target without trouble has no row. `state_json` is domain/targets.py; only that module reads it.
CREATE TABLE targets (
    service    TEXT NOT NULL,
    target     TEXT NOT NULL,
    state_json TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (service, target)
);
