-- The table of live notifications: who pushed a row stays in it, a pushed row has no error, and what its statements look for are
-- columns of `routes` or expressions that the next migration makes indexes of.

-- part: streams

-- The picker that pushed the entry: the route forgets its holder when it is settled.
ALTER TABLE stream_entries ADD COLUMN pushed_by text;

DO $$
DECLARE
    place text;
BEGIN
    -- Where the view is: under its own name in a schema of its own, or beside the tables.
    SELECT t.tgrelid::regclass::text INTO STRICT place FROM pg_trigger t
    WHERE t.tgname = 'notification_written' AND t.tgfoid = 'notification_written'::regproc;
    EXECUTE 'CREATE OR REPLACE VIEW ' || place || $view$ AS
SELECT CASE WHEN r.notification_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN r.notification_id
            ELSE md5(r.notification_id) END::uuid AS notification_id,
       regexp_replace(r.recipient_ref, '^user:', '') AS user_id,
       n.notification_type AS event_type,
       CASE r.lane WHEN 1 THEN 'HIGH'::notification_priority WHEN 2 THEN 'MEDIUM'::notification_priority
            ELSE 'LOW'::notification_priority END AS priority,
       notification_payload(n.payload_json) AS payload,
       CASE WHEN r.status = 'published' AND r.delivered_at IS NOT NULL THEN 'delivered'
            WHEN r.status = 'published' THEN 'pushed'
            WHEN r.status IN ('dead_letter', 'skipped') OR r.attempt_count > r.max_attempts THEN 'failed'
            WHEN r.claim_token IS NOT NULL THEN 'processing'
            ELSE 'not_pushed' END AS status,
       CASE WHEN r.status = 'published' THEN coalesce(r.lease_owner, e.pushed_by) ELSE r.lease_owner END AS processing_by,
       CASE WHEN r.claim_token IS NOT NULL THEN coalesce(r.claimed_at, r.created_at) END AS processing_started_at,
       CASE WHEN r.claim_token IS NOT NULL THEN r.next_attempt_at END AS processing_lease_expires_at,
       least(r.max_attempts, greatest(0, r.attempt_count
           - CASE WHEN r.status = 'published' OR r.claim_token IS NOT NULL THEN 1 ELSE 0 END)) AS retry_count,
       r.created_at AS notification_received_timestamp,
       r.published_at AS notification_pushed_timestamp,
       CASE WHEN r.published_at > n.accepted_at THEN date_part('epoch', r.published_at - n.accepted_at) * 1000
            WHEN r.published_at IS NOT NULL THEN 0 END::bigint AS processing_latency_ms,
       n.accepted_at AS created_at,
       greatest(r.updated_at, e.read_at) AS updated_at,
       coalesce(n.occurred_at, n.accepted_at) AS event_timestamp,
       r.delivered_at AS notification_delivered_timestamp,
       CASE WHEN r.status <> 'published' THEN r.last_error_message END AS last_error,
       e.read_at IS NOT NULL AS is_read,
       n.idempotency_key AS event_id,
       e.seq,
       r.claim_token
FROM routes r
JOIN records n ON n.notification_id = r.notification_id
LEFT JOIN stream_entries e ON e.notification_id = r.notification_id AND e.route_id = r.route_id
WHERE r.channel = 'sse';
$view$;
END $$;

CREATE OR REPLACE FUNCTION notification_written() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
        -- Who pushed it stays visible, as the blueprint's own statements leave it.
        lease_owner = CASE WHEN state IN ('processing', 'pushed', 'delivered') THEN NEW.processing_by END,
        created_at = came,
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
