CREATE SCHEMA notifications;
CREATE TYPE public.notification_priority AS ENUM (
    'HIGH',
    'MEDIUM',
    'LOW'
);
CREATE FUNCTION public.notification_payload(given text) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS $$
BEGIN
    RETURN given::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN to_jsonb(given);
END $$;
CREATE FUNCTION public.notification_written() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO '$user', 'public'
    AS $$
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
CREATE FUNCTION public.payment_webhook_requests_touch() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END;
$$;
CREATE TABLE public.records (
    notification_id text NOT NULL COLLATE pg_catalog."C",
    notification_type text NOT NULL,
    producer text NOT NULL COLLATE pg_catalog."C",
    audience_kind text NOT NULL,
    recipient_user_ids jsonb,
    payload_json text NOT NULL,
    idempotency_key text COLLATE pg_catalog."C",
    request_fingerprint text NOT NULL,
    request_id text,
    trace_id text,
    occurred_at timestamp with time zone,
    accepted_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    idempotency_expires_at timestamp with time zone,
    origin text NOT NULL,
    tenant_id text,
    user_id text,
    priority smallint NOT NULL,
    is_bulk boolean NOT NULL,
    metadata_json text,
    scheduled_for timestamp with time zone
);
CREATE TABLE public.routes (
    notification_id text NOT NULL COLLATE pg_catalog."C",
    route_id text NOT NULL COLLATE pg_catalog."C",
    channel text NOT NULL,
    recipient_ref text NOT NULL,
    status text NOT NULL,
    attempt_count integer DEFAULT 0 NOT NULL,
    max_attempts integer NOT NULL,
    next_attempt_at timestamp with time zone,
    resolved_email text GENERATED ALWAYS AS (
CASE
    WHEN (channel = 'email'::text) THEN address
    ELSE NULL::text
END) STORED,
    resolved_locale text,
    last_error_classification text,
    last_error_message text,
    last_error_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    published_at timestamp with time zone,
    dead_lettered_at timestamp with time zone,
    skipped_at timestamp with time zone,
    address text,
    lane smallint NOT NULL,
    provider text NOT NULL COLLATE pg_catalog."C",
    provider_since integer DEFAULT 0 NOT NULL,
    policy text NOT NULL,
    budget_since timestamp with time zone NOT NULL,
    message_json text,
    claim_token bigint,
    lease_owner text,
    provider_message_id text,
    settled_by text,
    receipt text,
    delivered_at timestamp with time zone,
    opened_at timestamp with time zone,
    clicked_at timestamp with time zone,
    claimed_at timestamp with time zone,
    CONSTRAINT routes_attempts CHECK ((attempt_count >= 0)),
    CONSTRAINT routes_due_only_while_open CHECK (((next_attempt_at IS NULL) OR (status = ANY (ARRAY['pending'::text, 'failed'::text])))),
    CONSTRAINT routes_status CHECK ((status = ANY (ARRAY['pending'::text, 'published'::text, 'failed'::text, 'dead_letter'::text, 'skipped'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.02', autovacuum_analyze_threshold='5000');
CREATE TABLE public.stream_entries (
    user_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    notification_id text NOT NULL COLLATE pg_catalog."C",
    route_id text NOT NULL COLLATE pg_catalog."C",
    pushed_at timestamp with time zone NOT NULL,
    delivered_at timestamp with time zone,
    read_at timestamp with time zone
);
CREATE VIEW notifications.notifications AS
 SELECT (
        CASE
            WHEN (n.notification_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'::text) THEN n.notification_id
            ELSE md5(n.notification_id)
        END)::uuid AS notification_id,
    regexp_replace(r.recipient_ref, '^user:'::text, ''::text) AS user_id,
    n.notification_type AS event_type,
    (
        CASE n.priority
            WHEN 1 THEN 'HIGH'::text
            WHEN 2 THEN 'MEDIUM'::text
            ELSE 'LOW'::text
        END)::public.notification_priority AS priority,
    public.notification_payload(n.payload_json) AS payload,
        CASE
            WHEN ((r.status = 'published'::text) AND (r.delivered_at IS NOT NULL)) THEN 'delivered'::text
            WHEN (r.status = 'published'::text) THEN 'pushed'::text
            WHEN ((r.status = ANY (ARRAY['dead_letter'::text, 'skipped'::text])) OR (r.attempt_count > r.max_attempts)) THEN 'failed'::text
            WHEN (r.claim_token IS NOT NULL) THEN 'processing'::text
            ELSE 'not_pushed'::text
        END AS status,
    r.lease_owner AS processing_by,
        CASE
            WHEN (r.claim_token IS NOT NULL) THEN COALESCE(r.claimed_at, r.created_at)
            ELSE NULL::timestamp with time zone
        END AS processing_started_at,
        CASE
            WHEN (r.claim_token IS NOT NULL) THEN r.next_attempt_at
            ELSE NULL::timestamp with time zone
        END AS processing_lease_expires_at,
    LEAST(r.max_attempts, GREATEST(0, (r.attempt_count -
        CASE
            WHEN ((r.status = 'published'::text) OR (r.claim_token IS NOT NULL)) THEN 1
            ELSE 0
        END))) AS retry_count,
    n.accepted_at AS notification_received_timestamp,
    r.published_at AS notification_pushed_timestamp,
    (
        CASE
            WHEN (r.published_at > n.accepted_at) THEN (date_part('epoch'::text, (r.published_at - n.accepted_at)) * (1000)::double precision)
            WHEN (r.published_at IS NOT NULL) THEN (0)::double precision
            ELSE NULL::double precision
        END)::bigint AS processing_latency_ms,
    n.accepted_at AS created_at,
    GREATEST(r.updated_at, e.read_at) AS updated_at,
    COALESCE(n.occurred_at, n.accepted_at) AS event_timestamp,
    r.delivered_at AS notification_delivered_timestamp,
    r.last_error_message AS last_error,
    (e.read_at IS NOT NULL) AS is_read,
    n.idempotency_key AS event_id,
    e.seq,
    r.claim_token
   FROM ((public.records n
     JOIN public.routes r ON ((r.notification_id = n.notification_id)))
     LEFT JOIN public.stream_entries e ON (((e.notification_id = r.notification_id) AND (e.route_id = r.route_id))))
  WHERE (r.channel = 'sse'::text);
CREATE VIEW public."NotificationQueue" AS
 SELECT n.notification_id AS "Id",
    n.tenant_id AS "TenantId",
    n.user_id AS "UserId",
    r.channel AS "Channel",
    n.notification_type AS "TemplateKey",
        CASE n.priority
            WHEN 1 THEN 'high'::text
            WHEN 2 THEN 'normal'::text
            ELSE 'low'::text
        END AS "Priority",
        CASE
            WHEN (r.status = ANY (ARRAY['pending'::text, 'failed'::text])) THEN 'queued'::text
            WHEN (r.status = 'dead_letter'::text) THEN 'failed'::text
            WHEN (r.status = 'skipped'::text) THEN 'skipped'::text
            WHEN (r.opened_at IS NOT NULL) THEN 'opened'::text
            ELSE 'delivered'::text
        END AS "Status",
    r.resolved_locale AS "Locale",
    r.address AS "Recipient",
    r.attempt_count AS "AttemptCount",
        CASE
            WHEN (r.status = 'dead_letter'::text) THEN r.last_error_message
            ELSE NULL::text
        END AS "LastError",
    r.provider AS "Provider",
    r.provider_message_id AS "ProviderMessageId",
    n.accepted_at AS "CreatedAt",
    r.published_at AS "SentAt",
    COALESCE(r.delivered_at, r.published_at) AS "DeliveredAt",
    r.dead_lettered_at AS "FailedAt",
    r.next_attempt_at AS "NextAttemptAt"
   FROM (public.records n
     JOIN public.routes r ON ((r.notification_id = n.notification_id)));
CREATE TABLE public.admin_actions (
    action_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    tenant_id text,
    subject text,
    reason text,
    detail_json text
);
ALTER TABLE public.admin_actions ALTER COLUMN action_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.admin_actions_action_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.api_keys (
    key_id text NOT NULL COLLATE pg_catalog."C",
    secret_hash text NOT NULL,
    tenant_id text,
    role text NOT NULL,
    name text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    last_used_at timestamp with time zone,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone
);
CREATE TABLE public.attempts (
    attempt_id bigint NOT NULL,
    notification_id text NOT NULL COLLATE pg_catalog."C",
    route_id text NOT NULL COLLATE pg_catalog."C",
    attempt integer NOT NULL,
    provider text NOT NULL,
    outcome text NOT NULL,
    classification text,
    error text,
    provider_message_id text,
    started_at timestamp with time zone NOT NULL,
    duration_ms double precision NOT NULL,
    verdict text NOT NULL,
    delay_ms double precision,
    settled text NOT NULL
);
CREATE TABLE public.audit_logs (
    audit_id bigint NOT NULL,
    trace_id text NOT NULL,
    user_id text NOT NULL,
    notification_type text NOT NULL,
    template_id text,
    status text NOT NULL,
    metadata jsonb,
    created_at timestamp with time zone NOT NULL,
    audit_key text
);
ALTER TABLE public.audit_logs ALTER COLUMN audit_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_logs_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.breakers (
    service text NOT NULL COLLATE pg_catalog."C",
    provider text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL,
    failures integer NOT NULL,
    successes integer NOT NULL,
    opened_at timestamp with time zone,
    probes_json text NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.claim_tokens
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.dead_letters (
    notification_id text NOT NULL COLLATE pg_catalog."C",
    route_id text NOT NULL COLLATE pg_catalog."C",
    channel text NOT NULL,
    recipient_ref text NOT NULL,
    final_attempt_count integer NOT NULL,
    max_attempts integer NOT NULL,
    failure_classification text NOT NULL,
    failure_message text NOT NULL,
    recovery_hint text NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.history_cursor (
    only_row boolean DEFAULT true NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    notification_id text NOT NULL COLLATE pg_catalog."C",
    route_id text NOT NULL COLLATE pg_catalog."C",
    owner text NOT NULL,
    held_until timestamp with time zone NOT NULL,
    CONSTRAINT history_cursor_only_row_check CHECK (only_row)
);
CREATE TABLE public.job_effects (
    effect_key text NOT NULL COLLATE pg_catalog."C",
    holder text NOT NULL,
    held_until timestamp with time zone NOT NULL,
    done_at timestamp with time zone
);
CREATE TABLE public.job_logs (
    id bigint NOT NULL,
    service text NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    message_id text NOT NULL COLLATE pg_catalog."C",
    correlation_id text,
    idempotency_key text,
    status text NOT NULL,
    attempts integer NOT NULL,
    last_error text,
    next_retry_at timestamp with time zone,
    action text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
ALTER TABLE public.job_logs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.job_logs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.malformed_intents (
    stream_entry_id text NOT NULL COLLATE pg_catalog."C",
    notification_type text,
    producer text,
    idempotency_key text,
    failure_code text NOT NULL,
    failure_message text NOT NULL,
    raw_fields jsonb NOT NULL,
    recorded_at timestamp with time zone NOT NULL
);
CREATE VIEW public.notificationqueue AS
 SELECT "NotificationQueue"."Id" AS id,
    "NotificationQueue"."TenantId" AS tenantid,
    "NotificationQueue"."UserId" AS userid,
    "NotificationQueue"."Channel" AS channel,
    "NotificationQueue"."TemplateKey" AS templatekey,
    "NotificationQueue"."Priority" AS priority,
    "NotificationQueue"."Status" AS status,
    "NotificationQueue"."Locale" AS locale,
    "NotificationQueue"."Recipient" AS recipient,
    "NotificationQueue"."AttemptCount" AS attemptcount,
    "NotificationQueue"."LastError" AS lasterror,
    "NotificationQueue"."Provider" AS provider,
    "NotificationQueue"."ProviderMessageId" AS providermessageid,
    "NotificationQueue"."CreatedAt" AS createdat,
    "NotificationQueue"."SentAt" AS sentat,
    "NotificationQueue"."DeliveredAt" AS deliveredat,
    "NotificationQueue"."FailedAt" AS failedat,
    "NotificationQueue"."NextAttemptAt" AS nextattemptat
   FROM public."NotificationQueue";
CREATE TABLE public.outbox (
    outbox_id bigint NOT NULL,
    topic text NOT NULL,
    notification_id text NOT NULL COLLATE pg_catalog."C",
    route_id text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone NOT NULL,
    next_attempt_at timestamp with time zone NOT NULL,
    attempt_count integer DEFAULT 0 NOT NULL,
    final_attempt_count integer,
    failure_message text,
    told text DEFAULT ''::text NOT NULL
);
ALTER TABLE public.outbox ALTER COLUMN outbox_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.outbox_outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.payment_webhook_requests (
    id integer NOT NULL,
    event_id text NOT NULL,
    payload jsonb NOT NULL,
    processed boolean DEFAULT false NOT NULL,
    processed_at timestamp with time zone,
    error_message text,
    retry_count integer DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
ALTER TABLE public.payment_webhook_requests ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.payment_webhook_requests_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.payments (
    transaction_id text NOT NULL COLLATE pg_catalog."C",
    subscription_id text NOT NULL COLLATE pg_catalog."C",
    status text NOT NULL,
    amount numeric(20,4) NOT NULL,
    currency text NOT NULL,
    action text NOT NULL,
    event_id text NOT NULL,
    idempotency_key text,
    gateway_reference text,
    message text,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.preferences (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    user_id text NOT NULL COLLATE pg_catalog."C",
    preferred_locale text,
    channels_json text DEFAULT '{}'::text NOT NULL,
    contacts_json text DEFAULT '{}'::text NOT NULL,
    quiet_hours_json text,
    updated_at timestamp with time zone NOT NULL
);
CREATE TABLE public.presence (
    user_id text NOT NULL COLLATE pg_catalog."C",
    replica text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE public.queue_outbox (
    message_id text NOT NULL COLLATE pg_catalog."C",
    queue text NOT NULL,
    action text NOT NULL,
    correlation_id text,
    idempotency_key text,
    payload_json text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    next_attempt_at timestamp with time zone NOT NULL
);
CREATE TABLE public.receipts (
    receipt_key text NOT NULL COLLATE pg_catalog."C",
    provider text NOT NULL,
    kind text NOT NULL,
    provider_message_id text,
    idempotency_key text,
    notification_id text COLLATE pg_catalog."C",
    route_id text COLLATE pg_catalog."C",
    address text,
    classification text,
    reason text,
    recipient_gone boolean DEFAULT false NOT NULL,
    occurred_at timestamp with time zone,
    received_at timestamp with time zone NOT NULL,
    effect text NOT NULL
);
CREATE TABLE public.redriven_routes (
    notification_id text NOT NULL COLLATE pg_catalog."C",
    route_id text NOT NULL COLLATE pg_catalog."C",
    action_id bigint NOT NULL
);
CREATE TABLE public.refunds (
    refund_id text NOT NULL COLLATE pg_catalog."C",
    transaction_id text NOT NULL COLLATE pg_catalog."C",
    amount numeric(20,4) NOT NULL,
    reason text NOT NULL,
    status text NOT NULL,
    gateway_reference text,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.replicas (
    replica text NOT NULL COLLATE pg_catalog."C",
    alive_until timestamp with time zone NOT NULL
);
CREATE TABLE public.schema_migrations (
    version integer NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE TABLE public.seal_keys (
    key_id text NOT NULL COLLATE pg_catalog."C",
    first_used_at timestamp with time zone NOT NULL
);
CREATE TABLE public.stream_tickets (
    digest text NOT NULL,
    user_id text NOT NULL,
    tenant_id text,
    token_until_ms bigint,
    token_id text,
    opened boolean DEFAULT false NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.streams (
    user_id text NOT NULL COLLATE pg_catalog."C",
    last_seq bigint NOT NULL,
    pruned_seq bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='80');
CREATE TABLE public.subscriptions (
    subscription_id text NOT NULL COLLATE pg_catalog."C",
    user_id text NOT NULL COLLATE pg_catalog."C",
    plan_id text NOT NULL,
    status text NOT NULL,
    trial boolean DEFAULT false NOT NULL,
    started_at timestamp with time zone,
    ends_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
CREATE TABLE public.suppressions (
    channel text NOT NULL,
    address text NOT NULL,
    reason text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    tenant_id text DEFAULT ''::text NOT NULL,
    source text DEFAULT 'delivery'::text NOT NULL
);
CREATE TABLE public.templates (
    template_id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    template_key text NOT NULL COLLATE pg_catalog."C",
    channel text NOT NULL COLLATE pg_catalog."C",
    locale text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    name text,
    description text,
    subject text,
    body text NOT NULL,
    html text,
    default_variables_json text,
    is_active boolean NOT NULL,
    created_by text,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    deleted_at timestamp with time zone
);
CREATE TABLE public.usage_counters (
    user_id text NOT NULL COLLATE pg_catalog."C",
    feature_name text NOT NULL COLLATE pg_catalog."C",
    usage_count bigint NOT NULL,
    reset_at timestamp with time zone,
    updated_at timestamp with time zone NOT NULL
);
CREATE TABLE public.usage_deltas (
    message_id text NOT NULL COLLATE pg_catalog."C",
    user_id text NOT NULL COLLATE pg_catalog."C",
    feature_name text NOT NULL COLLATE pg_catalog."C",
    delta bigint NOT NULL,
    counted_at timestamp with time zone NOT NULL
);
INSERT INTO public.admin_actions OVERRIDING SYSTEM VALUE VALUES (1, '2026-11-16 21:51:48.766542+00', 'ops', 'redrive', NULL, NULL, 'because', '{}');
INSERT INTO public.api_keys VALUES ('key1', '00', NULL, 'admin', 'old', '2026-11-16 21:51:48.584094+00', NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (1, 'n-1', 'email:delivered@example.org', 1, 'mailer', 'sent', NULL, NULL, 'm-1', '2026-11-16 21:51:48.306881+00', 3, 'finish', NULL, 'applied');
INSERT INTO public.attempts VALUES (2, 'n-2', 'email:buried@example.org', 1, 'mailer', 'refused', 'bad_address', 'no such mailbox', NULL, '2026-11-16 21:51:48.371374+00', 3, 'bury', NULL, 'applied');
INSERT INTO public.dead_letters VALUES ('n-2', 'email:buried@example.org', 'email', 'buried@example.org', 1, 3, 'bad_address', 'no such mailbox', 'Repair the cause, then redrive this route; it keeps its id and gets a fresh budget.', '2026-11-16 21:51:48.374374+00');
INSERT INTO public.malformed_intents VALUES ('1-0', NULL, NULL, NULL, 'X', 'broken', '{"to": "odd@example.org"}', '2026-11-16 21:51:48.542736+00');
INSERT INTO public.outbox OVERRIDING SYSTEM VALUE VALUES (1, 'NotificationFailed', 'n-2', 'email:buried@example.org', '2026-11-16 21:51:48.374374+00', '2026-11-16 21:51:48.374374+00', 0, 1, 'no such mailbox', '');
INSERT INTO public.payments VALUES ('t1', 's1', 'success', 9.9900, 'USD', 'initial', 'p1', NULL, NULL, NULL, '2026-11-16 21:51:48.656935+00');
INSERT INTO public.preferences VALUES ('', 'ann', NULL, '{"sms":false}', '{"email": "ann@example.org"}', NULL, '2026-11-16 21:51:48.512795+00');
INSERT INTO public.queue_outbox VALUES ('o1', 'q:pay:subscription_update', 'initial', NULL, NULL, '{"n":1}', '2026-11-16 21:51:48.675106+00', '2026-11-16 21:51:53.675106+00');
INSERT INTO public.records VALUES ('n-1', 'order.shipped', 'shop', 'user', NULL, '{"name": "Name of delivered"}', 'k-1', 'f-1', NULL, NULL, NULL, '2026-11-16 21:51:47.930464+00', '2026-11-16 21:51:47.930464+00', NULL, 'system', NULL, NULL, 2, false, '{"from":"a452e25"}', NULL);
INSERT INTO public.records VALUES ('n-2', 'order.shipped', 'shop', 'user', NULL, '{"name": "Name of buried"}', 'k-2', 'f-2', NULL, NULL, NULL, '2026-11-16 21:51:47.930465+00', '2026-11-16 21:51:47.930464+00', NULL, 'system', NULL, NULL, 2, false, '{"from":"a452e25"}', NULL);
INSERT INTO public.records VALUES ('n-3', 'order.shipped', 'shop', 'user', NULL, '{"name": "Name of waiting"}', 'k-3', 'f-3', NULL, NULL, NULL, '2026-11-16 21:51:47.930466+00', '2026-11-16 21:51:47.930464+00', NULL, 'system', NULL, NULL, 2, false, '{"from":"a452e25"}', NULL);
INSERT INTO public.routes VALUES ('n-3', 'email:waiting@example.org', 'email', 'waiting@example.org', 'pending', 0, 3, '2026-11-16 21:51:47.930466+00', DEFAULT, NULL, NULL, NULL, NULL, '2026-11-16 21:51:47.930464+00', '2026-11-16 21:51:47.930464+00', NULL, NULL, NULL, 'waiting@example.org', 2, 'mailer', 0, '*/*', '2026-11-16 21:51:47.930466+00', '{"text": "Dear waiting"}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.routes VALUES ('n-1', 'email:delivered@example.org', 'email', 'delivered@example.org', 'published', 1, 3, NULL, DEFAULT, NULL, NULL, NULL, NULL, '2026-11-16 21:51:47.930464+00', '2026-11-16 21:51:48.309881+00', '2026-11-16 21:51:48.309881+00', NULL, NULL, 'delivered@example.org', 2, 'mailer', 0, '*/*', '2026-11-16 21:51:47.930464+00', '{"text": "Dear delivered"}', NULL, NULL, 'm-1', 'applied', NULL, NULL, NULL, NULL, '2026-11-16 21:51:48.139889+00');
INSERT INTO public.routes VALUES ('n-2', 'email:buried@example.org', 'email', 'buried@example.org', 'dead_letter', 1, 3, NULL, DEFAULT, NULL, 'bad_address', 'no such mailbox', '2026-11-16 21:51:48.374374+00', '2026-11-16 21:51:47.930464+00', '2026-11-16 21:51:48.374374+00', NULL, '2026-11-16 21:51:48.374374+00', NULL, 'buried@example.org', 2, 'mailer', 0, '*/*', '2026-11-16 21:51:47.930465+00', '{"text": "Dear buried"}', NULL, NULL, NULL, 'applied', NULL, NULL, NULL, NULL, '2026-11-16 21:51:48.139889+00');
INSERT INTO public.schema_migrations VALUES (1, '2026-11-16 21:51:47.090221+00');
INSERT INTO public.schema_migrations VALUES (2, '2026-11-16 21:51:47.304237+00');
INSERT INTO public.schema_migrations VALUES (3, '2026-11-16 21:51:47.362534+00');
INSERT INTO public.schema_migrations VALUES (4, '2026-11-16 21:51:47.585698+00');
INSERT INTO public.schema_migrations VALUES (5, '2026-11-16 21:51:47.669122+00');
INSERT INTO public.schema_migrations VALUES (6, '2026-11-16 21:51:47.686432+00');
INSERT INTO public.schema_migrations VALUES (7, '2026-11-16 21:51:47.701182+00');
INSERT INTO public.schema_migrations VALUES (8, '2026-11-16 21:51:47.711743+00');
INSERT INTO public.schema_migrations VALUES (9, '2026-11-16 21:51:47.748515+00');
INSERT INTO public.subscriptions VALUES ('s1', 'u1', 'basic', 'pending', false, NULL, NULL, '2026-11-16 21:51:48.620135+00', '2026-11-16 21:51:48.620135+00');
INSERT INTO public.suppressions VALUES ('email', 'silent@example.org', 'asked', '2026-11-16 21:51:48.485904+00', NULL, '', 'operator');
INSERT INTO public.templates VALUES ('t-1', '', 'welcome', 'email', 'en', 1, NULL, NULL, NULL, 'Hello', NULL, NULL, true, NULL, '2026-11-16 21:51:48.538891+00', '2026-11-16 21:51:48.538891+00', NULL);
SELECT pg_catalog.setval('public.admin_actions_action_id_seq', 1, true);
SELECT pg_catalog.setval('public.audit_logs_audit_id_seq', 1, false);
SELECT pg_catalog.setval('public.claim_tokens', 2, true);
SELECT pg_catalog.setval('public.job_logs_id_seq', 1, false);
SELECT pg_catalog.setval('public.outbox_outbox_id_seq', 1, true);
SELECT pg_catalog.setval('public.payment_webhook_requests_id_seq', 1, false);
ALTER TABLE ONLY public.admin_actions
    ADD CONSTRAINT admin_actions_pkey PRIMARY KEY (action_id);
ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (notification_id, attempt_id);
ALTER TABLE ONLY public.audit_logs
    ADD CONSTRAINT audit_logs_audit_key_key UNIQUE (audit_key);
ALTER TABLE ONLY public.audit_logs
    ADD CONSTRAINT audit_logs_pkey PRIMARY KEY (audit_id);
ALTER TABLE ONLY public.breakers
    ADD CONSTRAINT breakers_pkey PRIMARY KEY (service, provider);
ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (notification_id, route_id);
ALTER TABLE ONLY public.history_cursor
    ADD CONSTRAINT history_cursor_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.job_effects
    ADD CONSTRAINT job_effects_pkey PRIMARY KEY (effect_key);
ALTER TABLE ONLY public.job_logs
    ADD CONSTRAINT job_logs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.job_logs
    ADD CONSTRAINT job_logs_queue_message_id_key UNIQUE (queue, message_id);
ALTER TABLE ONLY public.malformed_intents
    ADD CONSTRAINT malformed_intents_pkey PRIMARY KEY (stream_entry_id);
ALTER TABLE ONLY public.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (outbox_id);
ALTER TABLE ONLY public.payment_webhook_requests
    ADD CONSTRAINT payment_webhook_requests_event_id_key UNIQUE (event_id);
ALTER TABLE ONLY public.payment_webhook_requests
    ADD CONSTRAINT payment_webhook_requests_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.payments
    ADD CONSTRAINT payments_key UNIQUE (subscription_id, idempotency_key);
ALTER TABLE ONLY public.payments
    ADD CONSTRAINT payments_pkey PRIMARY KEY (transaction_id);
ALTER TABLE ONLY public.preferences
    ADD CONSTRAINT preferences_pkey PRIMARY KEY (tenant_id, user_id);
ALTER TABLE ONLY public.presence
    ADD CONSTRAINT presence_pkey PRIMARY KEY (user_id, replica);
ALTER TABLE ONLY public.queue_outbox
    ADD CONSTRAINT queue_outbox_pkey PRIMARY KEY (message_id);
ALTER TABLE ONLY public.receipts
    ADD CONSTRAINT receipts_pkey PRIMARY KEY (receipt_key);
ALTER TABLE ONLY public.records
    ADD CONSTRAINT records_key UNIQUE (producer, idempotency_key);
ALTER TABLE ONLY public.records
    ADD CONSTRAINT records_pkey PRIMARY KEY (notification_id);
ALTER TABLE ONLY public.redriven_routes
    ADD CONSTRAINT redriven_routes_pkey PRIMARY KEY (notification_id, route_id);
ALTER TABLE ONLY public.refunds
    ADD CONSTRAINT refunds_pkey PRIMARY KEY (refund_id);
ALTER TABLE ONLY public.refunds
    ADD CONSTRAINT refunds_transaction_id_key UNIQUE (transaction_id);
ALTER TABLE ONLY public.replicas
    ADD CONSTRAINT replicas_pkey PRIMARY KEY (replica);
ALTER TABLE ONLY public.routes
    ADD CONSTRAINT routes_pkey PRIMARY KEY (notification_id, route_id);
ALTER TABLE ONLY public.schema_migrations
    ADD CONSTRAINT schema_migrations_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.seal_keys
    ADD CONSTRAINT seal_keys_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY public.stream_entries
    ADD CONSTRAINT stream_entries_pkey PRIMARY KEY (user_id, seq);
ALTER TABLE ONLY public.stream_entries
    ADD CONSTRAINT stream_entries_route UNIQUE (notification_id, route_id);
ALTER TABLE ONLY public.stream_tickets
    ADD CONSTRAINT stream_tickets_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY public.streams
    ADD CONSTRAINT streams_pkey PRIMARY KEY (user_id);
ALTER TABLE ONLY public.subscriptions
    ADD CONSTRAINT subscriptions_pkey PRIMARY KEY (subscription_id);
ALTER TABLE ONLY public.suppressions
    ADD CONSTRAINT suppressions_pkey PRIMARY KEY (channel, address, tenant_id);
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT templates_pkey PRIMARY KEY (template_id, version);
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT templates_version UNIQUE (tenant_id, template_key, channel, locale, version);
ALTER TABLE ONLY public.usage_counters
    ADD CONSTRAINT usage_counters_pkey PRIMARY KEY (user_id, feature_name);
ALTER TABLE ONLY public.usage_deltas
    ADD CONSTRAINT usage_deltas_pkey PRIMARY KEY (message_id);
CREATE INDEX admin_actions_subject_idx ON public.admin_actions USING btree (subject);
CREATE INDEX attempts_message_idx ON public.attempts USING btree (provider_message_id) WHERE (provider_message_id IS NOT NULL);
CREATE INDEX audit_logs_trace_idx ON public.audit_logs USING btree (trace_id);
CREATE INDEX dead_letters_created_idx ON public.dead_letters USING btree (created_at);
CREATE INDEX job_effects_done_idx ON public.job_effects USING btree (done_at) WHERE (done_at IS NOT NULL);
CREATE INDEX job_logs_correlation_idx ON public.job_logs USING btree (correlation_id);
CREATE INDEX job_logs_idempotency_idx ON public.job_logs USING btree (idempotency_key);
CREATE INDEX job_logs_queue_status_idx ON public.job_logs USING btree (queue, status);
CREATE INDEX job_logs_updated_idx ON public.job_logs USING btree (updated_at);
CREATE INDEX outbox_due_idx ON public.outbox USING btree (next_attempt_at);
CREATE INDEX presence_replica_idx ON public.presence USING btree (replica);
CREATE INDEX queue_outbox_due_idx ON public.queue_outbox USING btree (next_attempt_at);
CREATE INDEX receipts_gone_idx ON public.receipts USING btree (address) WHERE recipient_gone;
CREATE INDEX receipts_notification_idx ON public.receipts USING btree (notification_id) WHERE (notification_id IS NOT NULL);
CREATE INDEX receipts_received_idx ON public.receipts USING btree (received_at);
CREATE INDEX receipts_waiting_idx ON public.receipts USING btree (received_at) WHERE (effect = 'waiting'::text);
CREATE INDEX records_accepted_idx ON public.records USING btree (accepted_at);
CREATE INDEX redriven_routes_action_idx ON public.redriven_routes USING btree (action_id);
CREATE INDEX routes_due_idx ON public.routes USING btree (lane, provider, next_attempt_at) WHERE (next_attempt_at IS NOT NULL);
CREATE INDEX routes_ended_idx ON public.routes USING btree (updated_at) WHERE (next_attempt_at IS NULL);
CREATE INDEX routes_held_idx ON public.routes USING btree (recipient_ref) WHERE ((provider = 'sse'::text) AND (next_attempt_at IS NOT NULL));
CREATE INDEX routes_leased_idx ON public.routes USING btree (next_attempt_at) WHERE ((channel = 'sse'::text) AND (claim_token IS NOT NULL));
CREATE INDEX stream_tickets_expires_idx ON public.stream_tickets USING btree (expires_at);
CREATE INDEX subscriptions_user_idx ON public.subscriptions USING btree (user_id);
CREATE TRIGGER notification_written INSTEAD OF INSERT OR UPDATE ON notifications.notifications FOR EACH ROW EXECUTE FUNCTION public.notification_written();
CREATE TRIGGER payment_webhook_requests_touch BEFORE UPDATE ON public.payment_webhook_requests FOR EACH ROW EXECUTE FUNCTION public.payment_webhook_requests_touch();
ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_notification_id_route_id_fkey FOREIGN KEY (notification_id, route_id) REFERENCES public.routes(notification_id, route_id) ON DELETE CASCADE;
ALTER TABLE ONLY public.redriven_routes
    ADD CONSTRAINT redriven_routes_notification_id_route_id_fkey FOREIGN KEY (notification_id, route_id) REFERENCES public.routes(notification_id, route_id) ON DELETE CASCADE;
ALTER TABLE ONLY public.routes
    ADD CONSTRAINT routes_notification_id_fkey FOREIGN KEY (notification_id) REFERENCES public.records(notification_id) ON DELETE CASCADE;
