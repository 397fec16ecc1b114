-- Live streams: each person's log of what was pushed to them, who reads it where, and document 004's table as a view.

-- When the present lease was taken; its renewals leave this alone.
ALTER TABLE routes ADD COLUMN claimed_at timestamptz;

-- part: streams

-- What is not told to somebody yet: found when they come, and before something later is told. Nobody else's acceptance
-- pays for it.
CREATE INDEX routes_held_idx ON routes (recipient_ref) WHERE provider = 'sse' AND next_attempt_at IS NOT NULL;

-- Leases of live streams by their end, for whoever takes back what a dead process held.
CREATE INDEX routes_leased_idx ON routes (next_attempt_at) WHERE channel = 'sse' AND claim_token IS NOT NULL;

-- One row a person: its lock is what gives numbers out in the order in which they become visible.
CREATE TABLE streams (
    user_id    text COLLATE "C" PRIMARY KEY,
    last_seq   bigint NOT NULL,
    -- Retention has taken something up to here.
    pruned_seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);

-- No foreign key: its check would lock the record for every line written. Retention deletes these rows itself.
CREATE TABLE stream_entries (
    user_id         text COLLATE "C" NOT NULL,
    seq             bigint NOT NULL,
    notification_id text COLLATE "C" NOT NULL,
    route_id        text COLLATE "C" NOT NULL,
    pushed_at       timestamptz NOT NULL,
    delivered_at    timestamptz,
    read_at         timestamptz,
    PRIMARY KEY (user_id, seq),
    -- A repeat of the same push finds its number here.
    CONSTRAINT stream_entries_route UNIQUE (notification_id, route_id)
);

-- Who is connected where; a replica that is not alive any more is connected to nobody.
CREATE TABLE presence (
    user_id text COLLATE "C" NOT NULL,
    replica text COLLATE "C" NOT NULL,
    PRIMARY KEY (user_id, replica)
);

CREATE INDEX presence_replica_idx ON presence (replica);

CREATE TABLE replicas (
    replica     text COLLATE "C" PRIMARY KEY,
    alive_until timestamptz NOT NULL
);

-- Sorts as it is written: most urgent first, which no text does.
CREATE TYPE notification_priority AS ENUM ('HIGH', 'MEDIUM', 'LOW');

-- Whatever a payload holds that jsonb refuses, it must not take the whole table from an operator's eyes.
CREATE FUNCTION notification_payload(given text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN given::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN to_jsonb(given);
END $$;

-- Document 004's table under its own names and words. Attempts are counted at the claim, so the one that is under way, or
-- that succeeded, is no retry; who claims what has no try left only does so to give it up.
CREATE VIEW sse_notifications AS
SELECT CASE WHEN n.notification_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN n.notification_id
            ELSE md5(n.notification_id) END::uuid AS notification_id,
       regexp_replace(r.recipient_ref, '^user:', '') AS user_id,
       n.notification_type AS event_type,
       (CASE n.priority WHEN 1 THEN 'HIGH' WHEN 2 THEN 'MEDIUM' ELSE 'LOW' END)::notification_priority AS priority,
       notification_payload(n.payload_json) AS payload,
       CASE WHEN r.status = 'published' AND r.delivered_at IS NOT NULL THEN 'delivered'
            WHEN r.status = 'published' THEN 'pushed'
            WHEN r.status IN ('dead_letter', 'skipped') OR r.attempt_count > r.max_attempts THEN 'failed'
            WHEN r.claim_token IS NOT NULL THEN 'processing'
            ELSE 'not_pushed' END AS status,
       r.lease_owner AS processing_by,
       CASE WHEN r.claim_token IS NOT NULL THEN coalesce(r.claimed_at, r.created_at) END AS processing_started_at,
       CASE WHEN r.claim_token IS NOT NULL THEN r.next_attempt_at END AS processing_lease_expires_at,
       least(r.max_attempts, greatest(0, r.attempt_count
           - CASE WHEN r.status = 'published' OR r.claim_token IS NOT NULL THEN 1 ELSE 0 END)) AS retry_count,
       n.accepted_at AS notification_received_timestamp,
       r.published_at AS notification_pushed_timestamp,
       CASE WHEN r.published_at > n.accepted_at THEN date_part('epoch', r.published_at - n.accepted_at) * 1000
            WHEN r.published_at IS NOT NULL THEN 0 END::bigint AS processing_latency_ms,
       n.accepted_at AS created_at,
       greatest(r.updated_at, e.read_at) AS updated_at,
       coalesce(n.occurred_at, n.accepted_at) AS event_timestamp,
       r.delivered_at AS notification_delivered_timestamp,
       r.last_error_message AS last_error,
       e.read_at IS NOT NULL AS is_read,
       n.idempotency_key AS event_id,
       e.seq,
       r.claim_token
FROM records n
JOIN routes r ON r.notification_id = n.notification_id
LEFT JOIN stream_entries e ON e.notification_id = r.notification_id AND e.route_id = r.route_id
WHERE r.channel = 'sse';

-- The document's own statements may be run against its table, by an operator or by a picker of somebody else's. Whoever takes
-- a notification over gets a token of their own, so that the picker who had it changes nothing any more.
CREATE FUNCTION notification_written() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    at      timestamptz := clock_timestamp();
    id      text := coalesce(NEW.notification_id, gen_random_uuid())::text;
    route   text := 'sse:user:' || NEW.user_id;
    came    timestamptz := coalesce(NEW.notification_received_timestamp, NEW.created_at, at);
    state   text := coalesce(NEW.status, 'not_pushed');
    retries integer := coalesce(NEW.retry_count, 0);
    rank    smallint := array_position(enum_range(NULL::notification_priority), coalesce(NEW.priority, 'MEDIUM'));
    anew    boolean := TRUE;
    renewed boolean := FALSE;
BEGIN
    IF state NOT IN ('not_pushed', 'processing', 'pushed', 'delivered', 'failed') THEN
        RAISE EXCEPTION 'there is no status %', state USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO records (
            notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json, idempotency_key,
            request_fingerprint, occurred_at, accepted_at, updated_at, origin, user_id, priority, is_bulk)
        VALUES (
            id, coalesce(NEW.event_type, 'unknown'), 'notifications', 'user', jsonb_build_array(NEW.user_id),
            coalesce(NEW.payload, '{}')::text, coalesce(NEW.event_id, id), 'sql', NEW.event_timestamp, came, at, 'sql',
            NEW.user_id, rank, FALSE);
        INSERT INTO routes (
            notification_id, route_id, channel, recipient_ref, status, max_attempts, created_at, updated_at, address, lane,
            provider, policy, budget_since)
        VALUES (
            id, route, 'sse', 'user:' || NEW.user_id, 'pending', 3, came, at, NEW.user_id, rank, 'sse', '*/sse', came);
    ELSE
        SELECT r.route_id INTO STRICT route FROM routes r
        WHERE r.notification_id = id AND r.channel = 'sse' AND r.recipient_ref IN (OLD.user_id, 'user:' || OLD.user_id);
        came := CASE WHEN NEW.created_at IS DISTINCT FROM OLD.created_at THEN NEW.created_at ELSE came END;
        anew := state <> OLD.status;
        renewed := state = 'processing' AND NOT anew AND NEW.processing_by IS NOT DISTINCT FROM OLD.processing_by;
        UPDATE records n SET accepted_at = came, updated_at = at WHERE n.notification_id = id AND n.accepted_at <> came;
    END IF;
    UPDATE routes r
    SET status = CASE WHEN state IN ('pushed', 'delivered') THEN 'published' WHEN state = 'failed' THEN 'dead_letter'
                      WHEN retries > 0 THEN 'failed' ELSE 'pending' END,
        attempt_count = retries + CASE WHEN state IN ('not_pushed', 'failed') THEN 0 ELSE 1 END,
        next_attempt_at = CASE
            WHEN state = 'processing' THEN coalesce(NEW.processing_lease_expires_at, at + interval '30 seconds')
            WHEN state = 'not_pushed' AND anew THEN r.budget_since
            WHEN state = 'not_pushed' THEN r.next_attempt_at END,
        claim_token = CASE WHEN renewed THEN r.claim_token WHEN state = 'processing' THEN nextval('claim_tokens') END,
        lease_owner = CASE WHEN state = 'processing' THEN NEW.processing_by END,
        claimed_at = CASE WHEN state = 'processing' THEN coalesce(NEW.processing_started_at, at) END,
        published_at = CASE WHEN state IN ('pushed', 'delivered') THEN coalesce(NEW.notification_pushed_timestamp, at) END,
        delivered_at = CASE WHEN state = 'delivered' THEN coalesce(NEW.notification_delivered_timestamp, at) END,
        dead_lettered_at = CASE WHEN state = 'failed' THEN coalesce(r.dead_lettered_at, at) END,
        last_error_message = NEW.last_error,
        updated_at = at
    WHERE r.notification_id = id AND r.route_id = route;
    UPDATE stream_entries e SET read_at = CASE WHEN NEW.is_read THEN coalesce(e.read_at, at) END
    WHERE e.notification_id = id AND e.route_id = route AND NEW.is_read <> (e.read_at IS NOT NULL);
    IF state = 'failed' THEN
        INSERT INTO dead_letters (
            notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
            failure_message, recovery_hint, created_at)
        SELECT r.notification_id, r.route_id, r.channel, r.recipient_ref, r.attempt_count, r.max_attempts, 'by_hand',
               coalesce(NEW.last_error, 'failed by hand'), 'Repair the cause, then redrive this route.', at
        FROM routes r WHERE r.notification_id = id AND r.route_id = route
        ON CONFLICT (notification_id, route_id) DO NOTHING;
    ELSE
        DELETE FROM dead_letters d WHERE d.notification_id = id AND d.route_id = route;
    END IF;
    NEW.notification_id := CASE WHEN TG_OP = 'INSERT' THEN id::uuid ELSE NEW.notification_id END;
    RETURN NEW;
END $$;

CREATE TRIGGER notification_written INSTEAD OF INSERT OR UPDATE ON sse_notifications
    FOR EACH ROW EXECUTE FUNCTION notification_written();

-- The document's name. A ledger in a schema of its own keeps the view there, so that two ledgers of one database do not
-- meet; a role that may not make schemas leaves it where it is. A table of that name with the document's columns is adopted: it
-- stays as notifications_before, and its rows are written through the view, so that everything reads and writes them as before.
-- copies: notifications as notifications_before
DO $$
DECLARE
    home   text := CASE WHEN current_schema() = 'public' THEN 'notifications' ELSE current_schema() END;
    shared text;
    given  text;
BEGIN
    IF home <> current_schema() THEN
        CREATE SCHEMA IF NOT EXISTS notifications;
        ALTER VIEW sse_notifications SET SCHEMA notifications;
    END IF;
    SELECT string_agg(quote_ident(t.attname), ', ' ORDER BY v.attnum),
           string_agg(format('%I::%s', t.attname, format_type(v.atttypid, v.atttypmod)), ', ' ORDER BY v.attnum)
    INTO shared, given
    FROM pg_attribute t
    JOIN pg_class c ON c.oid = t.attrelid AND c.relkind IN ('r', 'p') AND c.relname = 'notifications'
        AND c.relnamespace = quote_ident(home)::regnamespace
    JOIN pg_attribute v ON v.attrelid = format('%I.sse_notifications', home)::regclass AND v.attname = t.attname
    WHERE t.attnum > 0 AND NOT t.attisdropped AND t.attname NOT IN ('seq', 'claim_token', 'processing_latency_ms');
    IF shared IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %I.notifications RENAME TO notifications_before', home);
    END IF;
    EXECUTE format('ALTER VIEW %I.sse_notifications RENAME TO notifications', home);
    IF shared IS NOT NULL THEN
        EXECUTE format('INSERT INTO %1$I.notifications (%2$s) SELECT %3$s FROM %1$I.notifications_before', home, shared, given);
    END IF;
EXCEPTION WHEN insufficient_privilege OR duplicate_table THEN
    RAISE WARNING 'the view of document 004 stays under the name sse_notifications: %', SQLERRM;
END $$;
