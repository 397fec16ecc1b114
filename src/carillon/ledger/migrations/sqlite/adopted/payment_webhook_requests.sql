-- A table payment_webhook_requests that was there: its rows stay, and it gets what document 003 says of it.

-- made: id integer
ALTER TABLE payment_webhook_requests ADD COLUMN id INTEGER;

-- column: event_id text, varchar
ALTER TABLE payment_webhook_requests ADD COLUMN event_id TEXT;

-- column: payload text, json
ALTER TABLE payment_webhook_requests ADD COLUMN payload TEXT NOT NULL DEFAULT '{}';

-- column: processed integer, boolean
ALTER TABLE payment_webhook_requests ADD COLUMN processed INTEGER NOT NULL DEFAULT 0;

-- column: processed_at integer, bigint
ALTER TABLE payment_webhook_requests ADD COLUMN processed_at INTEGER;

-- column: error_message text, varchar
ALTER TABLE payment_webhook_requests ADD COLUMN error_message TEXT;

-- column: retry_count integer, bigint
ALTER TABLE payment_webhook_requests ADD COLUMN retry_count INTEGER NOT NULL DEFAULT 0;

-- column: created_at integer, bigint
ALTER TABLE payment_webhook_requests ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;

-- column: updated_at integer, bigint
ALTER TABLE payment_webhook_requests ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;

-- An event that comes again is one row.
-- unique: event_id
SELECT event_id FROM payment_webhook_requests WHERE event_id IS NOT NULL GROUP BY event_id HAVING count(*) > 1 LIMIT 1;

CREATE UNIQUE INDEX IF NOT EXISTS payment_webhook_requests_event_id_key ON payment_webhook_requests (event_id);

CREATE TRIGGER IF NOT EXISTS payment_webhook_requests_touch AFTER UPDATE ON payment_webhook_requests
WHEN new.updated_at IS old.updated_at
BEGIN
    UPDATE payment_webhook_requests SET updated_at = CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
    WHERE id = new.id;
END;
