-- Digests: many events of one person told in one message.

-- part: api

CREATE TABLE digests (
    -- Also the id of the notification that tells it.
    digest_id   text COLLATE "C" PRIMARY KEY,
    tenant_id   text COLLATE "C" NOT NULL,
    audience    text COLLATE "C" NOT NULL,
    channels    text COLLATE "C" NOT NULL,
    digest_key  text COLLATE "C" NOT NULL,
    opened_at   timestamptz NOT NULL,
    closes_at   timestamptz NOT NULL,
    -- No event joins any more.
    closed_at   timestamptz,
    -- Until when one process tells it.
    taken_until timestamptz,
    -- Its notification is stored, or never can be: `error` says why.
    told_at     timestamptz,
    event_count integer NOT NULL,
    -- The bytes of the events' data.
    size        integer NOT NULL,
    intent_json text NOT NULL,
    error       text
);

-- One open digest for each person, channels and key.
CREATE UNIQUE INDEX digests_open_idx ON digests (tenant_id, audience, channels, digest_key) WHERE closed_at IS NULL;
-- What is due, and what closed because it was full.
CREATE INDEX digests_due_idx ON digests (closes_at) WHERE told_at IS NULL;
CREATE INDEX digests_full_idx ON digests (closed_at) WHERE told_at IS NULL AND closed_at IS NOT NULL;
CREATE INDEX digests_told_idx ON digests (told_at) WHERE told_at IS NOT NULL;

CREATE TABLE digest_members (
    digest_id       text COLLATE "C" NOT NULL REFERENCES digests ON DELETE CASCADE,
    notification_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (digest_id, notification_id)
);

-- Retention keeps the events of a digest that is not told yet.
CREATE INDEX digest_members_notification_idx ON digest_members (notification_id);
