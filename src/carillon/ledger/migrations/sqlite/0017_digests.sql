-- Digests: many events of one person told in one message.

-- part: api

CREATE TABLE digests (
    -- Also the id of the notification that tells it.
    digest_id   TEXT NOT NULL PRIMARY KEY,
    tenant_id   TEXT NOT NULL,
    audience    TEXT NOT NULL,
    channels    TEXT NOT NULL,
    digest_key  TEXT NOT NULL,
    opened_at   INTEGER NOT NULL,
    closes_at   INTEGER NOT NULL,
    -- No event joins any more.
    closed_at   INTEGER,
    -- Until when one process tells it.
    taken_until INTEGER,
    -- Its notification is stored, or never can be: `error` says why.
    told_at     INTEGER,
    event_count INTEGER NOT NULL,
    -- The bytes of the events' data.
    size        INTEGER NOT NULL,
    intent_json TEXT NOT NULL,
    error       TEXT
);

-- One open digest for each person, channels and key.
CREATE UNIQUE INDEX digests_open_idx ON digests (tenant_id, audience, channels, digest_key) WHERE closed_at IS NULL;
-- What is due, and what closed because it was full.
CREATE INDEX digests_due_idx ON digests (closes_at) WHERE told_at IS NULL;
CREATE INDEX digests_full_idx ON digests (closed_at) WHERE told_at IS NULL AND closed_at IS NOT NULL;
CREATE INDEX digests_told_idx ON digests (told_at) WHERE told_at IS NOT NULL;

CREATE TABLE digest_members (
    digest_id       TEXT NOT NULL REFERENCES digests (digest_id) ON DELETE CASCADE,
    notification_id TEXT NOT NULL,
    PRIMARY KEY (digest_id, notification_id)
);

-- Retention keeps the events of a digest that is not told yet.
CREATE INDEX digest_members_notification_idx ON digest_members (notification_id);
