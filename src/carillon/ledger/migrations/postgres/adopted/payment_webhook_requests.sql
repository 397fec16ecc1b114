-- A table payment_webhook_requests that was there: its rows stay, and it gets what document 003 says of it.

-- made: id integer, bigint
ALTER TABLE payment_webhook_requests ADD COLUMN id integer GENERATED ALWAYS AS IDENTITY;

-- column: event_id text, character varying
ALTER TABLE payment_webhook_requests ADD COLUMN event_id text;

-- column: payload jsonb
ALTER TABLE payment_webhook_requests ADD COLUMN payload jsonb NOT NULL DEFAULT '{}';

-- column: processed boolean
ALTER TABLE payment_webhook_requests ADD COLUMN processed boolean NOT NULL DEFAULT FALSE;

-- column: processed_at timestamp with time zone, timestamp without time zone
ALTER TABLE payment_webhook_requests ADD COLUMN processed_at timestamptz;

-- column: error_message text, character varying
ALTER TABLE payment_webhook_requests ADD COLUMN error_message text;

-- column: retry_count integer, bigint, smallint
ALTER TABLE payment_webhook_requests ADD COLUMN retry_count integer NOT NULL DEFAULT 0;

-- column: created_at timestamp with time zone, timestamp without time zone
ALTER TABLE payment_webhook_requests ADD COLUMN created_at timestamptz NOT NULL DEFAULT clock_timestamp();

-- column: updated_at timestamp with time zone, timestamp without time zone
ALTER TABLE payment_webhook_requests ADD COLUMN updated_at timestamptz NOT NULL DEFAULT clock_timestamp();

-- A text of any length must fit: this changes no row.
-- widened: event_id character varying
ALTER TABLE payment_webhook_requests ALTER COLUMN event_id TYPE text;

-- widened: error_message character varying
ALTER TABLE payment_webhook_requests ALTER COLUMN error_message TYPE text;

-- The statements of the subscription service leave these to the database.
ALTER TABLE payment_webhook_requests ALTER COLUMN processed SET DEFAULT FALSE;

ALTER TABLE payment_webhook_requests ALTER COLUMN retry_count SET DEFAULT 0;

ALTER TABLE payment_webhook_requests ALTER COLUMN created_at SET DEFAULT clock_timestamp();

ALTER TABLE payment_webhook_requests ALTER COLUMN updated_at SET DEFAULT clock_timestamp();

-- An event that comes again is one row.
-- unique: event_id
SELECT event_id FROM payment_webhook_requests WHERE event_id IS NOT NULL GROUP BY event_id HAVING count(*) > 1 LIMIT 1;

CREATE UNIQUE INDEX IF NOT EXISTS payment_webhook_requests_event_id_key ON payment_webhook_requests (event_id);

CREATE OR REPLACE FUNCTION payment_webhook_requests_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END;
$$;

CREATE OR REPLACE TRIGGER payment_webhook_requests_touch BEFORE UPDATE ON payment_webhook_requests
FOR EACH ROW EXECUTE FUNCTION payment_webhook_requests_touch();
