-- One-use tickets that open a stream, so that no long-lived token stands in a URL; only their digests are kept.
-- part: streams

CREATE TABLE stream_tickets (
    digest         text PRIMARY KEY,
    user_id        text NOT NULL,
    tenant_id      text,
    -- When the token ends that the ticket was given for, and its name.
    token_until_ms bigint,
    token_id       text,
    opened         boolean NOT NULL DEFAULT FALSE,
    expires_at     timestamptz NOT NULL
);

CREATE INDEX stream_tickets_expires_idx ON stream_tickets (expires_at);
