-- The table of live notifications takes a picker's batch in one statement, and gives a row to one picker alone.

-- part: streams

-- Runs for each row. An update of one route costs more before its first row than for it, because of the indexes; so this function locks
-- the row and remembers what is to be written, and `notifications_write` writes all of it at the end of the statement, or when there is much.
-- Races: another picker of the table, our own pickers, a late settlement. Each of them may change the row after the statement has looked at
-- it. Such a row is passed over: it is not written, and not among the rows that the statement returns.
--   claim_token, retry_count   somebody took it, or gave it back.
--   published, dead_letter     it has ended, or was redriven.
--   SKIP LOCKED                who takes a row does not wait for another who is taking it; every other change waits.
CREATE OR REPLACE FUNCTION notification_written() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    at      timestamptz := clock_timestamp();
    id      text := coalesce(NEW.notification_id, gen_random_uuid())::text;
    state   text := coalesce(NEW.status, 'not_pushed');
    came    timestamptz := coalesce(NEW.notification_received_timestamp, NEW.created_at, at);
    route   text;
    dated   boolean;
    anew    boolean;
    rank    smallint;
    told    text;
BEGIN
    IF state NOT IN ('not_pushed', 'processing', 'pushed', 'delivered', 'failed') THEN
        RAISE EXCEPTION 'there is no status %', state USING ERRCODE = 'check_violation';
    END IF;
    IF TG_OP = 'INSERT' THEN
        rank := array_position(enum_range(NULL::notification_priority), coalesce(NEW.priority, 'MEDIUM'));
        route := 'sse:user:' || NEW.user_id;
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
        NEW.notification_id := id::uuid;
        anew := TRUE;
        dated := FALSE;
    ELSE
        anew := state <> OLD.status;
        IF anew AND state = 'processing' THEN
            SELECT r.route_id INTO route FROM routes r
            WHERE r.notification_id = id AND r.channel = 'sse' AND r.recipient_ref IN ('user:' || OLD.user_id, OLD.user_id)
              AND r.claim_token IS NOT DISTINCT FROM OLD.claim_token AND r.status IN ('pending', 'failed')
              AND r.attempt_count = OLD.retry_count
            FOR NO KEY UPDATE SKIP LOCKED;
        ELSE
            SELECT r.route_id INTO route FROM routes r
            WHERE r.notification_id = id AND r.channel = 'sse' AND r.recipient_ref IN ('user:' || OLD.user_id, OLD.user_id)
              AND r.claim_token IS NOT DISTINCT FROM OLD.claim_token
              AND least(r.max_attempts, greatest(0, r.attempt_count
                      - CASE WHEN r.status = 'published' OR r.claim_token IS NOT NULL THEN 1 ELSE 0 END)) = OLD.retry_count
              AND (r.status = 'published') = (OLD.status IN ('pushed', 'delivered'))
              AND (r.status NOT IN ('dead_letter', 'skipped') OR OLD.status = 'failed')
            FOR NO KEY UPDATE;
        END IF;
        IF route IS NULL THEN
            IF NOT EXISTS (SELECT FROM records n WHERE n.notification_id = id) THEN
                RAISE EXCEPTION 'the notification % has an id that is no UUID: change it through the API', id
                    USING ERRCODE = 'no_data_found';
            END IF;
            RETURN NULL;
        END IF;
        dated := (NEW.created_at, NEW.notification_received_timestamp)
                 IS DISTINCT FROM (OLD.created_at, OLD.notification_received_timestamp);
        IF NEW.created_at IS DISTINCT FROM OLD.created_at THEN
            came := NEW.created_at;
        END IF;
    END IF;
    told := coalesce(current_setting('carillon.notifications_written', TRUE), '')
        || json_build_object(
            'id', id, 'route', route, 'state', state, 'retries', coalesce(NEW.retry_count, 0), 'anew', anew,
            'renewed', NOT anew AND NEW.processing_by IS NOT DISTINCT FROM OLD.processing_by,
            'owner', NEW.processing_by, 'since', NEW.processing_started_at, 'until', NEW.processing_lease_expires_at,
            'came', CASE WHEN dated THEN came END, 'pushed', NEW.notification_pushed_timestamp,
            'delivered', NEW.notification_delivered_timestamp, 'error', NEW.last_error,
            'ended', OLD.status NOT IN ('not_pushed', 'processing'),
            'is_read', CASE WHEN NEW.is_read <> OLD.is_read THEN NEW.is_read END)::text || ',';
    PERFORM set_config('carillon.notifications_written', told, TRUE);
    -- Each row copies what is remembered: a statement over a million rows must not remember all of them.
    IF octet_length(told) > 40000 THEN
        PERFORM notifications_write();
    END IF;
    RETURN NEW;
END $$;

-- Writes what is remembered; all its rows are locked, or were inserted, by this statement.
CREATE FUNCTION notifications_write() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    at    timestamptz := clock_timestamp();
    given text := nullif(current_setting('carillon.notifications_written', TRUE), '');
    rows  json := ('[' || rtrim(given, ',') || ']')::json;
BEGIN
    IF given IS NULL THEN
        RETURN;
    END IF;
    PERFORM set_config('carillon.notifications_written', '', TRUE);
    UPDATE routes r
    SET status = CASE WHEN w.state IN ('pushed', 'delivered') THEN 'published' WHEN w.state = 'failed' THEN 'dead_letter'
                      WHEN w.retries > 0 THEN 'failed' ELSE 'pending' END,
        attempt_count = w.retries + CASE WHEN w.state IN ('not_pushed', 'failed') THEN 0 ELSE 1 END,
        next_attempt_at = CASE
            WHEN w.state = 'processing' THEN coalesce(w.until, at + interval '30 seconds')
            WHEN w.state = 'not_pushed' AND w.anew THEN r.budget_since
            WHEN w.state = 'not_pushed' THEN r.next_attempt_at END,
        -- A picker who takes a notification over gets a new token, so that the picker who had it changes nothing any more.
        claim_token = CASE WHEN w.state = 'processing' AND w.renewed THEN r.claim_token
                           WHEN w.state = 'processing' THEN nextval('claim_tokens') END,
        -- Who pushed it stays visible, as the blueprint's own statements leave it.
        lease_owner = CASE WHEN w.state IN ('processing', 'pushed', 'delivered') THEN w.owner END,
        created_at = coalesce(w.came, r.created_at),
        claimed_at = CASE WHEN w.state = 'processing' THEN coalesce(w.since, at) END,
        published_at = CASE WHEN w.state IN ('pushed', 'delivered') THEN coalesce(w.pushed, at) END,
        delivered_at = CASE WHEN w.state = 'delivered' THEN coalesce(w.delivered, at) END,
        dead_lettered_at = CASE WHEN w.state = 'failed' THEN coalesce(r.dead_lettered_at, at) END,
        last_error_message = w.error,
        updated_at = at
    FROM json_to_recordset(rows) AS w (
        id text, route text, state text, retries integer, anew boolean, renewed boolean, owner text, since timestamptz,
        until timestamptz, came timestamptz, pushed timestamptz, delivered timestamptz, error text)
    WHERE r.notification_id = w.id AND r.route_id = w.route;
    -- Most statements change none of the rest.
    IF EXISTS (SELECT FROM json_to_recordset(rows) AS w (came timestamptz, is_read boolean) WHERE w.came IS NOT NULL
               OR w.is_read IS NOT NULL) THEN
        UPDATE records n SET accepted_at = w.came, updated_at = at
        FROM json_to_recordset(rows) AS w (id text, came timestamptz)
        WHERE n.notification_id = w.id AND w.came IS NOT NULL;
        UPDATE stream_entries e SET read_at = CASE WHEN w.is_read THEN coalesce(e.read_at, at) END
        FROM json_to_recordset(rows) AS w (id text, route text, is_read boolean)
        WHERE e.notification_id = w.id AND e.route_id = w.route AND w.is_read IS NOT NULL;
    END IF;
    IF EXISTS (SELECT FROM json_to_recordset(rows) AS w (state text, ended boolean) WHERE w.ended OR w.state = 'failed') THEN
        INSERT INTO dead_letters (
            notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
            failure_message, recovery_hint, created_at)
        SELECT r.notification_id, r.route_id, r.channel, r.recipient_ref, r.attempt_count, r.max_attempts, 'by_hand',
               coalesce(w.error, 'failed by hand'), 'Repair the cause, then redrive this route.', at
        FROM json_to_recordset(rows) AS w (id text, route text, state text, error text)
        JOIN routes r ON r.notification_id = w.id AND r.route_id = w.route
        WHERE w.state = 'failed'
        ON CONFLICT (notification_id, route_id) DO NOTHING;
        DELETE FROM dead_letters d
        USING json_to_recordset(rows) AS w (id text, route text, state text)
        WHERE d.notification_id = w.id AND d.route_id = w.route AND w.state <> 'failed';
    END IF;
END $$;

CREATE FUNCTION notifications_written() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM notifications_write();
    RETURN NULL;
END $$;

DO $$
DECLARE
    place text;
BEGIN
    SELECT t.tgrelid::regclass::text INTO STRICT place FROM pg_trigger t
    WHERE t.tgname = 'notification_written' AND t.tgfoid = 'notification_written'::regproc;
    EXECUTE 'CREATE TRIGGER notifications_written AFTER INSERT OR UPDATE ON ' || place
        || ' FOR EACH STATEMENT EXECUTE FUNCTION notifications_written()';
END $$;
