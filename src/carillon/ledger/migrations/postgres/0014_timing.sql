-- Until when a notification is worth sending, and what stopped it. Runs outside a transaction, one statement after another,
-- while older processes accept and send: every statement may run again. Statements end with the line.
-- online

-- The ALTER needs a lock that everybody waits behind. It gives up soon, and the migration tries it again.
SET lock_timeout = '200ms';

-- No provider is called after `expires_at`. `stopped` says why nothing more is sent: `collapsed:<id>` or `cancelled`.
ALTER TABLE records
    ADD COLUMN IF NOT EXISTS expires_at timestamptz,
    ADD COLUMN IF NOT EXISTS stopped text;

RESET lock_timeout;

-- The newest notification under each collapse key, for each audience; `before` is the one that it has replaced.
CREATE TABLE IF NOT EXISTS collapses (
    tenant_id       text COLLATE "C" NOT NULL,
    audience        text COLLATE "C" NOT NULL,
    collapse_key    text COLLATE "C" NOT NULL,
    notification_id text COLLATE "C" NOT NULL,
    before          text COLLATE "C",
    updated_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, audience, collapse_key)
);

-- Retention begins with the oldest.
CREATE INDEX IF NOT EXISTS collapses_updated_idx ON collapses (updated_at);
