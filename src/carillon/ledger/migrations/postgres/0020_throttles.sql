-- Throttles: when the last notifications of a category went to a person, no more of them than the throttle allows.

-- part: api

CREATE TABLE throttles (
    tenant_id  text COLLATE "C" NOT NULL,
    audience   text COLLATE "C" NOT NULL,
    category   text COLLATE "C" NOT NULL,
    -- Unix milliseconds.
    times_json text NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, audience, category)
);

-- Retention begins with the oldest.
CREATE INDEX throttles_updated_idx ON throttles (updated_at);
