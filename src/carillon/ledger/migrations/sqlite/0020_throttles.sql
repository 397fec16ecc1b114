-- Throttles: when the last notifications of a category went to a person, no more of them than the throttle allows.

-- part: api

CREATE TABLE throttles (
    tenant_id  TEXT NOT NULL,
    audience   TEXT NOT NULL,
    category   TEXT NOT NULL,
    -- Unix milliseconds.
    times_json TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, audience, category)
);

-- Retention begins with the oldest.
CREATE INDEX throttles_updated_idx ON throttles (updated_at);
