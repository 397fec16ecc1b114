-- One-use tickets that open a stream, so that no long-lived token stands in a URL; only their digests are kept.
-- part: streams

CREATE TABLE stream_tickets (
    digest         TEXT PRIMARY KEY,
    user_id        TEXT NOT NULL,
    tenant_id      TEXT,
    -- When the token ends that the ticket was given for, and its name.
    token_until_ms INTEGER,
    token_id       TEXT,
    opened         INTEGER NOT NULL DEFAULT 0,
    expires_at     INTEGER NOT NULL
);

CREATE INDEX stream_tickets_expires_idx ON stream_tickets (expires_at);
