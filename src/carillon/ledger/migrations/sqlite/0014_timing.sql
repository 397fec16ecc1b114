-- Until when a notification is worth sending, and what stopped it.

-- No provider is called after `expires_at`. `stopped` says why nothing more is sent: `collapsed:<id>` or `cancelled`.
ALTER TABLE records ADD COLUMN expires_at INTEGER;
ALTER TABLE records ADD COLUMN stopped TEXT;

-- The newest notification under each collapse key, for each audience; `before` is the one that it has replaced.
CREATE TABLE collapses (
    tenant_id       TEXT NOT NULL,
    audience        TEXT NOT NULL,
    collapse_key    TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    before          TEXT,
    updated_at      INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, audience, collapse_key)
);

-- Retention begins with the oldest.
CREATE INDEX collapses_updated_idx ON collapses (updated_at);
