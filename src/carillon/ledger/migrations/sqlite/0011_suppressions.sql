-- A suppression belongs to the tenant whose message caused it. Suppressions of no tenant hold for everybody: nobody knows
-- any more whose message caused those that are here, so they stay in force as they are.
CREATE TABLE suppressions_owned (
    -- A number is never used again: routes keep the number of the suppression that stopped them.
    suppression_id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel        TEXT NOT NULL,
    address        TEXT NOT NULL,
    reason         TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    expires_at     INTEGER,
    tenant_id      TEXT NOT NULL DEFAULT '',
    source         TEXT NOT NULL DEFAULT 'delivery',
    -- An earlier release that still runs writes none: nearly all of what it writes are refusals at the send.
    kind           TEXT NOT NULL DEFAULT 'invalid',
    CONSTRAINT suppressions_key UNIQUE (channel, address, tenant_id)
);
INSERT INTO suppressions_owned (channel, address, reason, created_at, expires_at, tenant_id, source, kind)
SELECT channel, address, reason, created_at, expires_at, tenant_id, source,
       CASE WHEN source = 'operator' THEN 'manual'
            WHEN reason IN ('complained', 'spam_reporting_address') THEN 'complained'
            WHEN source = 'unsubscribe' OR reason IN ('opted_out', 'unsubscribed_address', '21610') THEN 'unsubscribed'
            WHEN channel = 'email' THEN 'bounced'
            ELSE 'invalid' END
FROM suppressions ORDER BY created_at, channel, address, tenant_id;
DROP TABLE suppressions;
ALTER TABLE suppressions_owned RENAME TO suppressions;

CREATE INDEX suppressions_tenant_idx ON suppressions (tenant_id, created_at);
CREATE INDEX suppressions_expires_idx ON suppressions (expires_at) WHERE expires_at IS NOT NULL;

-- The suppression that stopped a route, as it was then.
ALTER TABLE routes ADD COLUMN suppression_id INTEGER;
ALTER TABLE routes ADD COLUMN suppression_kind TEXT;
ALTER TABLE routes ADD COLUMN suppressed_until INTEGER;
