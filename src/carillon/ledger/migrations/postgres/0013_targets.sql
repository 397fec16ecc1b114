-- What a fleet knows about the targets of its calls: the breakers of endpoints, and how fast calls may start.

-- A target without trouble has no row. `state_json` is domain/targets.py; only that module reads it.
CREATE TABLE targets (
    service    text COLLATE "C" NOT NULL,
    target     text COLLATE "C" NOT NULL,
    state_json text NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (service, target)
);
