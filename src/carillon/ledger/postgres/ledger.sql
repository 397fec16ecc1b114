-- Statements of acceptance and delivery. Keys arrive sorted, so that two batches lock common rows in the same order.

-- name: enrol
-- Races: two doors with one key, and our own repeat after a COMMIT whose answer was lost.
--   ON CONFLICT DO NOTHING  the first writer of a key or an id wins, the second waits for its commit and writes nothing;
--                           there is no moment between looking and inserting.
--   written                 routes are laid only for records written here: both tables or neither, in one statement.
--   IS TRUE                 keeps the look-up a hash table; a join planned for ten rows would compare all with all.
--   place                   adds microseconds within one commit, so that the times keep the order of acceptance.
--   (SELECT $23), (SELECT $40)  hide from the planner how many there are: for one alone a plan of its own seems cheaper
--                           than the cached one, and PostgreSQL would plan every such acceptance anew.
--   held_by                 a route whose address is suppressed when it is due is enrolled as skipped, and keeps by
--                           what; LIMIT 1 keeps it one look-up a route, even with wrong statistics.
--   NOT EXISTS              of a tenant's own suppression and everybody's, the one that holds longer counts; asked only
--                           where one was found, while a sort would cost every route.
--   (SELECT EXISTS ...)     most ledgers have no suppressions: asked once, not for each route.
--   ticket                  what is due now gets a ticket and stands in `due`; a schedule gets one when its time has come.
--   live                    routes of live streams have no tickets: their turns and leases are in their rows, see claim_live.sql.
--   $41                     the worker that gets its first claim of every route that is due now, or NULL: as by `claim`, with a lease
--                           that counts the attempt when it runs out. Without such a worker, the passages of first claims are left out.
--   free, fenced            the places of groups with a cap, $43 and $44, as in `claim`: of two processes that take places of
--                           one group at the same moment, the second finds another fence than it saw, and takes none.
--                           Without caps the passages between `caps` and `end of caps` are left out: they cost 0.1 ms.
--   nth                     a batch may have more routes of a group than the group has places: the rest waits for its turn.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), written AS (
    INSERT INTO records (
        notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json, idempotency_key,
        request_fingerprint, request_id, trace_id, occurred_at, accepted_at, updated_at, idempotency_expires_at,
        origin, tenant_id, user_id, priority, is_bulk, metadata_json, scheduled_for, sent_by, expires_at, category)
    SELECT n.notification_id, n.notification_type, n.producer, n.audience_kind, n.recipient_user_ids::jsonb,
           n.payload_json, n.idempotency_key, n.request_fingerprint, n.request_id, n.trace_id,
           to_timestamp(n.occurred_at_ms / 1000.0), clock.now + n.place * interval '1 microsecond', clock.now,
           clock.now + n.place * interval '1 microsecond' + n.idempotency_ttl_seconds * interval '1 second',
           n.origin, n.tenant_id, n.user_id, n.priority, n.is_bulk, n.metadata_json,
           to_timestamp(n.scheduled_for_ms / 1000.0), n.sent_by, to_timestamp(n.expires_at_ms / 1000.0),
           n.category
    FROM clock, unnest(
        $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::float8[], $12::float8[], $13::text[], $14::text[], $15::text[], $16::smallint[],
        $17::boolean[], $18::text[], $19::float8[], $20::text[], $21::float8[], $22::text[],
        (SELECT $23::int[])
    ) AS n (
        notification_id, notification_type, producer, audience_kind, recipient_user_ids, payload_json, idempotency_key,
        request_fingerprint, request_id, trace_id, occurred_at_ms, idempotency_ttl_seconds, origin, tenant_id, user_id,
        priority, is_bulk, metadata_json, scheduled_for_ms, sent_by, expires_at_ms, category, place)
    ON CONFLICT DO NOTHING
    RETURNING notification_id
-- caps
), places AS MATERIALIZED (
    SELECT cap.grp, cap.calls - taken.calls AS free, s.fence
    FROM unnest($43::bigint[], (SELECT $44::int[])) AS cap (grp, calls)
    CROSS JOIN LATERAL (
        SELECT count(*)::int AS calls FROM (
            SELECT unnest(l.tickets) FROM leases l WHERE l.grp = cap.grp
            UNION ALL
            SELECT r.claim_token FROM routes r WHERE r.grp = cap.grp AND r.grp < 0 AND r.claim_token IS NOT NULL AND r.turn IS NULL) AS held
    ) AS taken
    LEFT JOIN slots s ON s.grp = cap.grp
), picked AS MATERIALIZED (
    SELECT given.notification_id, given.route_id, places.grp, places.free, places.fence,
           row_number() OVER (PARTITION BY places.grp ORDER BY given.place, given.route_id) AS nth
    FROM places JOIN unnest($24::text[], $25::text[], $30::text[], $37::bigint[], $38::float8[], (SELECT $40::int[])) AS given (
        notification_id, route_id, skipped_because, grp, scheduled_for_ms, place) ON given.grp = places.grp
    WHERE given.skipped_because IS NULL AND given.scheduled_for_ms IS NULL
      AND (given.notification_id IN (SELECT notification_id FROM written)) IS TRUE
), fenced AS (
    INSERT INTO slots AS s (grp, fence, before, taken_at)
    SELECT grp, nextval('claim_tokens'), fence, clock.now
    FROM clock CROSS JOIN (SELECT DISTINCT grp, fence FROM picked WHERE nth <= free ORDER BY grp) AS ours
    ON CONFLICT (grp) DO UPDATE
    SET fence = excluded.fence, before = excluded.before, taken_at = excluded.taken_at
    WHERE s.fence = excluded.before
    RETURNING s.grp, s.fence
-- end of caps
), laid AS (
    INSERT INTO routes (
        notification_id, route_id, channel, recipient_ref, status, max_attempts, next_attempt_at, resolved_locale,
        last_error_classification, last_error_message, last_error_at, created_at, updated_at, skipped_at, address,
        lane, provider, policy, budget_since, message_json, attempt_count, claim_token, lease_owner, suppression_id,
        suppression_kind, suppressed_until, grp, turn, ticket)
    SELECT r.notification_id, r.route_id, r.channel, r.recipient_ref,
           CASE WHEN r.skipped THEN 'skipped' ELSE 'pending' END,
           r.max_attempts,
           CASE WHEN r.held AND r.live THEN clock.now + $42::float8 * interval '1 second' WHEN NOT r.skipped THEN r.due_at END,
           r.resolved_locale,
           CASE WHEN r.gone THEN 'suppressed' ELSE r.skipped_by END,
           CASE WHEN r.gone THEN 'the address is suppressed' ELSE r.skipped_because END,
           CASE WHEN r.skipped THEN clock.now END,
           clock.now, clock.now,
           CASE WHEN r.skipped THEN clock.now END,
           r.address, r.lane, r.provider, r.policy, r.due_at, r.message_json,
           CASE WHEN r.held AND r.live THEN 1 ELSE 0 END,
           CASE WHEN r.held AND r.live THEN nextval('claim_tokens') END,
           CASE WHEN r.held THEN $41::text END,
           CASE WHEN r.gone THEN r.suppression_id END, CASE WHEN r.gone THEN r.kind END,
           CASE WHEN r.gone THEN r.expires_at END,
           r.grp, CASE WHEN r.live AND NOT r.held AND NOT r.skipped AND r.scheduled_for_ms IS NULL THEN r.grp END,
           CASE WHEN NOT r.live AND (r.held OR (NOT r.skipped AND r.scheduled_for_ms IS NULL)) THEN nextval('claim_tokens') END
    FROM clock, (
        SELECT given.*, given.channel = 'sse' AS live, coalesce(
                   to_timestamp(given.scheduled_for_ms / 1000.0), clock.now + given.place * interval '1 microsecond'
               ) AS due_at,
               held_by.*,
               given.skipped_because IS NULL AND held_by.suppression_id IS NOT NULL AS gone,
               given.skipped_because IS NOT NULL OR held_by.suppression_id IS NOT NULL AS skipped,
               $41::text IS NOT NULL AND given.scheduled_for_ms IS NULL
                   AND given.skipped_because IS NULL AND held_by.suppression_id IS NULL
-- caps
                   AND ((given.grp IN (SELECT grp FROM places)) IS NOT TRUE
                        OR ((given.notification_id, given.route_id) IN (
                                SELECT picked.notification_id, picked.route_id FROM picked
                                WHERE picked.nth <= picked.free AND (picked.grp IN (SELECT grp FROM fenced)) IS TRUE
                            )) IS TRUE)
-- end of caps
                   AS held
        FROM clock, unnest(
            $24::text[], $25::text[], $26::text[], $27::text[], $28::int[], $29::text[], $30::text[],
            $31::text[], $32::text[], $33::smallint[], $34::text[], $35::text[], $36::text[], $37::bigint[], $38::float8[], $39::text[],
            (SELECT $40::int[])
        ) AS given (
            notification_id, route_id, channel, recipient_ref, max_attempts, resolved_locale, skipped_because,
            skipped_by, address, lane, provider, policy, message_json, grp, scheduled_for_ms, tenant_id, place)
        LEFT JOIN LATERAL (
            SELECT s.suppression_id, s.kind, s.expires_at FROM suppressions s
            WHERE (SELECT EXISTS (SELECT FROM suppressions))
              AND s.channel = given.channel AND s.address = given.address AND s.tenant_id IN ('', given.tenant_id)
              AND (s.expires_at IS NULL
                   OR s.expires_at > greatest(clock.now, to_timestamp(given.scheduled_for_ms / 1000.0)))
              AND NOT EXISTS (
                  SELECT FROM suppressions l
                  WHERE l.channel = s.channel AND l.address = s.address AND l.tenant_id IN ('', given.tenant_id)
                    AND (coalesce(l.expires_at, 'infinity'), l.tenant_id)
                        > (coalesce(s.expires_at, 'infinity'), s.tenant_id))
            LIMIT 1
        ) AS held_by ON TRUE
    ) AS r
    WHERE (r.notification_id IN (SELECT notification_id FROM written)) IS TRUE
    RETURNING notification_id, route_id, claim_token, budget_since, ctid AS place, channel, suppression_id,
        suppression_kind, suppressed_until, lane, provider, grp, next_attempt_at, ticket, lease_owner
), queued AS (
    INSERT INTO due (lane, provider, grp, due_at, ticket)
    SELECT lane, provider, grp, next_attempt_at, ticket FROM laid WHERE ticket IS NOT NULL AND lease_owner IS NULL
-- first claims
), batch AS MATERIALIZED (
    SELECT nextval('claim_tokens') AS id
), leased AS (
    INSERT INTO leases (lease_id, grp, owner, claimed_at, expires_at, tickets)
    SELECT batch.id, NULL, $41, clock.now, clock.now + $42::float8 * interval '1 second', tickets.here
    FROM batch CROSS JOIN clock CROSS JOIN (
        SELECT array_agg(ticket) AS here FROM laid
        WHERE ticket IS NOT NULL AND lease_owner IS NOT NULL
-- caps
          AND (grp IN (SELECT grp FROM fenced)) IS NOT TRUE
-- end of caps
    ) AS tickets
    WHERE tickets.here IS NOT NULL
-- caps
), leased_apart AS (
    INSERT INTO leases (lease_id, grp, owner, claimed_at, expires_at, tickets)
    SELECT fenced.fence, fenced.grp, $41, clock.now, clock.now + $42::float8 * interval '1 second', array_agg(laid.ticket)
    FROM laid JOIN fenced ON fenced.grp = laid.grp CROSS JOIN clock
    WHERE laid.ticket IS NOT NULL AND laid.lease_owner IS NOT NULL GROUP BY fenced.fence, fenced.grp, clock.now
-- end of caps
-- end of first claims
)
SELECT notification_id, NULL::text AS route_id, NULL::bigint AS token, NULL::bigint AS accepted_at_ms,
    NULL::tid AS place, NULL::bigint AS lease, NULL::text AS channel, NULL::bigint AS suppression_id, NULL::text AS kind,
    NULL::bigint AS until_ms
FROM written
UNION ALL
SELECT notification_id, route_id,
       CASE WHEN lease_owner IS NOT NULL THEN coalesce(ticket, claim_token) END,
       (date_part('epoch', date_trunc('milliseconds', budget_since)) * 1000)::bigint, place,
-- first claims
       CASE WHEN ticket IS NULL THEN 0 ELSE coalesce(
-- caps
           (SELECT fence FROM fenced WHERE fenced.grp = laid.grp),
-- end of caps
           (SELECT id FROM batch)) END,
-- end of first claims
-- no first claims
       NULL,
-- end of no first claims
       channel, suppression_id,
       suppression_kind, (date_part('epoch', suppressed_until) * 1000)::bigint
FROM laid WHERE lease_owner IS NOT NULL OR suppression_id IS NOT NULL;

-- name: winners
-- Runs after `enrol` committed: the writer that won the key has committed as well, so a fresh snapshot sees its row.
--   claimed_at              what a worker has had was skipped later: its story says so.
WITH found AS (
    SELECT n.notification_id FROM records n WHERE n.notification_id = ANY ($1::text[])
    UNION
    SELECT n.notification_id
    FROM unnest($2::text[], $3::text[]) AS lost (producer, idempotency_key)
    JOIN records n ON n.producer = lost.producer AND n.idempotency_key = lost.idempotency_key
)
SELECT n.notification_id, n.producer, n.idempotency_key, n.request_fingerprint,
       coalesce(n.idempotency_expires_at <= clock_timestamp(), FALSE) AS expired,
       coalesce((SELECT r.lane FROM routes r WHERE r.notification_id = n.notification_id ORDER BY r.route_id LIMIT 1),
                n.priority) AS lane,
       (SELECT json_agg(json_build_object(
                   'route_id', r.route_id, 'channel', r.channel, 'suppression', json_build_object(
                       'suppression_id', r.suppression_id, 'kind', r.suppression_kind,
                       'until_ms', (date_part('epoch', r.suppressed_until) * 1000)::bigint)) ORDER BY r.route_id)::text
        FROM routes r
        WHERE r.notification_id = n.notification_id AND r.status = 'skipped' AND r.suppression_id IS NOT NULL
       ) AS suppressed_json,
       (SELECT json_agg(json_build_object('route_id', r.route_id, 'channel', r.channel,
                   'gate', r.last_error_classification, 'because', r.last_error_message) ORDER BY r.route_id)::text
        FROM routes r
        WHERE r.notification_id = n.notification_id AND r.status = 'skipped' AND r.claimed_at IS NULL
          AND (r.last_error_classification IN ('category', 'throttle')
               OR (r.last_error_classification = 'suppressed' AND r.suppression_id IS NULL))
       ) AS gated_json
FROM found JOIN records n ON n.notification_id = found.notification_id;

-- name: keep_malformed
-- Race: the same stream entry read twice, by a restart or by two replicas; the first row stays.
INSERT INTO malformed_intents (
    stream_entry_id, notification_type, producer, idempotency_key, failure_code, failure_message, raw_fields, recorded_at)
SELECT m.*, clock_timestamp()
FROM (
    SELECT stream_entry_id, notification_type, producer, idempotency_key, failure_code, failure_message,
        raw_fields::jsonb
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]) AS given (
        stream_entry_id, notification_type, producer, idempotency_key, failure_code, failure_message, raw_fields)
) AS m
ON CONFLICT (stream_entry_id) DO NOTHING;

-- name: extend
-- Races: a worker that was suspended renews a route that another worker holds by now; the lease is ended by a settlement or taken apart
-- by a claim at this moment.
--   ticket, claim_token     only the holder of the current one may extend the lease.
--   status                  a route that a late success has finished has no lease to extend.
--   ORDER BY lease_id       every statement that locks several leases locks them in this order: nobody waits in a circle.
--   turn                    a lease of a live stream that ran out and stands in the turns, not claimed yet, goes back among the leases.
WITH held AS MATERIALIZED (
    SELECT held.*, r.ctid AS place, r.ticket IS NOT NULL AS ticketed
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS held (notification_id, route_id, token, lease)
    JOIN routes r ON r.notification_id = held.notification_id AND r.route_id = held.route_id
    WHERE (r.ticket = held.token OR r.claim_token = held.token) AND r.status IN ('pending', 'failed')
), found AS MATERIALIZED (
    SELECT l.lease_id FROM leases l WHERE l.lease_id IN (SELECT lease FROM held WHERE ticketed)
    ORDER BY l.lease_id FOR UPDATE
), renewed AS (
    UPDATE leases l SET expires_at = clock_timestamp() + $5::float8 * interval '1 second'
    FROM found WHERE l.lease_id = found.lease_id
    RETURNING l.lease_id
), in_row AS (
    UPDATE routes r
    SET next_attempt_at = clock_timestamp() + $5::float8 * interval '1 second',
        turn = NULL,
        updated_at = clock_timestamp()
    FROM held
    WHERE NOT held.ticketed AND r.notification_id = held.notification_id AND r.route_id = held.route_id
      AND r.claim_token = held.token
      AND r.status IN ('pending', 'failed')
    RETURNING held.token, r.ctid AS place
)
SELECT token, place FROM in_row
UNION ALL
SELECT held.token, held.place FROM held WHERE held.ticketed AND held.lease IN (SELECT lease_id FROM renewed);

-- name: settle
-- Races: the lease ran out and another worker has the route, or finished it; the same settlement comes again after a
-- COMMIT whose answer was lost.
--   UPDATE                  judges and changes in one step: an update that waited for a row judges its newest version again.
--   status                  a terminal route stays as it is.
--   ticket, claim_token     a stale failure changes nothing.
--   finish                  a late success is adopted while the route is open, because that message did go out. If the route waits
--                           again, the trigger of `routes` takes it out of `due`.
--   attempt_count           a claim under a ticket did not count its attempt: the settlement does, or the end of the lease. An
--                           adopted success counts the attempt of the present holder too.
--   ended, freed            leases of which nothing is left, $20, end. A lease of a group with a cap, $21, loses the settled tickets:
--                           their places are free when the settlement commits, and a repeat frees nothing twice.
--   locked                  before the routes, in one order: a claim that takes a lease apart does so too.
--   ON CONFLICT             the claim's token is the attempt's id: a repeat writes no second row, and the last lines give
--                           it the answer of the first.
--   finished_by             the same for a repeat of `settle_finished`, whose attempt is told by the route.
--   (SELECT $17)            hides from the planner how many there are, as in `enrol`.
--   alerted                 the alert is written with the dead letter, once: only the changed row returns it.
-- The sub-selects with IS TRUE stay hash tables; joins planned for ten rows would compare all with all.
WITH locked AS MATERIALIZED (
    SELECT l.lease_id FROM leases l WHERE l.lease_id = ANY ($20::bigint[] || $21::bigint[]) ORDER BY l.lease_id FOR UPDATE
), ended AS (
    DELETE FROM leases l
    WHERE l.lease_id = ANY (ARRAY(SELECT lease_id FROM locked WHERE (lease_id IN (SELECT unnest($20::bigint[]))) IS TRUE))
), freed AS (
    UPDATE leases l
    SET tickets = ARRAY(SELECT t.ticket FROM unnest(l.tickets) AS t (ticket) WHERE (t.ticket IN (SELECT unnest($22::bigint[]))) IS NOT TRUE)
    WHERE l.lease_id = ANY (ARRAY(SELECT lease_id FROM locked WHERE (lease_id IN (SELECT unnest($21::bigint[]))) IS TRUE))
), clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, count(*) AS leases FROM locked
), given AS MATERIALIZED (
    SELECT * FROM unnest(
        $2::text[], $3::text[], $4::bigint[], $5::text[], $6::float8[], $7::text[], $8::text[], $9::text[],
        $10::text[], $11::int[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[], (SELECT $17::float8[]), $18::bigint[]
    ) WITH ORDINALITY AS given (
        notification_id, route_id, token, verdict, delay, next_provider, error_classification, error_message,
        suppression_json, attempt, provider, outcome, classification, error, provider_message_id, duration_ms, grp, place)
), changed AS (
    UPDATE routes r
    SET status = CASE given.verdict
            WHEN 'finish' THEN 'published' WHEN 'bury' THEN 'dead_letter' WHEN 'skip' THEN 'skipped'
            WHEN 'defer' THEN r.status ELSE 'failed' END,
        attempt_count = CASE WHEN given.verdict NOT IN ('defer', 'skip')
                THEN r.attempt_count + CASE WHEN r.ticket = given.token
                    OR EXISTS (SELECT FROM leases l WHERE r.ticket = ANY (l.tickets)) THEN 1 ELSE 0 END
            WHEN r.ticket = given.token THEN r.attempt_count ELSE greatest(r.attempt_count - 1, 0) END,
        next_attempt_at = clock.now + given.delay * interval '1 second',
        provider = coalesce(given.next_provider, r.provider),
        grp = coalesce(given.grp, r.grp),
        provider_since = CASE WHEN given.verdict = 'fail_over'
            THEN r.attempt_count + CASE WHEN r.ticket = given.token THEN 1 ELSE 0 END
            WHEN given.verdict = 'defer' AND given.next_provider IS NOT NULL THEN r.attempt_count ELSE r.provider_since END,
        provider_message_id = coalesce(given.provider_message_id, r.provider_message_id),
        last_error_classification = coalesce(given.error_classification, r.last_error_classification),
        last_error_message = coalesce(given.error_message, r.last_error_message),
        last_error_at = CASE WHEN given.error_message IS NULL THEN r.last_error_at ELSE clock.now END,
        published_at = CASE WHEN given.verdict = 'finish' THEN clock.now END,
        dead_lettered_at = CASE WHEN given.verdict = 'bury' THEN clock.now END,
        skipped_at = CASE WHEN given.verdict = 'skip' THEN clock.now END,
        suppression_id = (given.suppression_json::json ->> 'suppression_id')::bigint,
        suppression_kind = given.suppression_json::json ->> 'kind',
        suppressed_until = to_timestamp((given.suppression_json::json ->> 'until_ms')::float8 / 1000.0),
        settled_by = CASE WHEN given.token IN (r.ticket, r.claim_token) THEN 'applied' ELSE 'adopted' END,
        claimed_at = CASE WHEN r.ticket = given.token THEN clock.now ELSE r.claimed_at END,
        ticket = CASE WHEN r.ticket <> given.token THEN r.ticket END,
        claim_token = NULL,
        lease_owner = NULL,
        updated_at = clock.now
    FROM clock CROSS JOIN given
    WHERE r.notification_id = given.notification_id AND r.route_id = given.route_id
      AND r.status IN ('pending', 'failed')
      AND (r.ticket = given.token OR r.claim_token = given.token OR given.verdict = 'finish')
    RETURNING given.place, r.settled_by, given.verdict, r.notification_id, r.route_id, r.channel,
        r.recipient_ref, r.attempt_count, r.max_attempts, given.error_classification, given.error_message,
        r.lane
), judged AS MATERIALIZED (
    SELECT given.*,
           CASE WHEN (place IN (SELECT place FROM changed WHERE settled_by = 'applied')) IS TRUE THEN 'applied'
                WHEN (place IN (SELECT place FROM changed WHERE settled_by = 'adopted')) IS TRUE THEN 'adopted'
                ELSE 'stale' END AS settled
    FROM given
), noted AS (
    INSERT INTO attempts (
        attempt_id, notification_id, route_id, attempt, provider, outcome, classification, error, provider_message_id,
        started_at, duration_ms, verdict, delay_ms, settled)
    SELECT token, notification_id, route_id, attempt, provider, outcome, classification, error, provider_message_id,
           clock.now - duration_ms * interval '1 millisecond', duration_ms, verdict, delay * 1000, settled
    FROM clock CROSS JOIN judged
    WHERE outcome IS NOT NULL
      AND (settled <> 'stale' OR EXISTS (
              SELECT FROM routes r
              WHERE r.notification_id = judged.notification_id AND r.route_id = judged.route_id
                AND r.finished_by IS DISTINCT FROM judged.token))
    ON CONFLICT (notification_id, attempt_id) DO NOTHING
), buried AS (
    INSERT INTO dead_letters (
        notification_id, route_id, channel, recipient_ref, final_attempt_count, max_attempts, failure_classification,
        failure_message, recovery_hint, created_at)
    SELECT notification_id, route_id, channel, recipient_ref, attempt_count, max_attempts, error_classification,
           error_message, $1, clock.now
    FROM clock CROSS JOIN changed
    WHERE verdict = 'bury'
    ON CONFLICT (notification_id, route_id) DO NOTHING
), alerted AS (
    INSERT INTO outbox (
        topic, notification_id, route_id, created_at, next_attempt_at, final_attempt_count, failure_message)
    SELECT 'NotificationFailed', notification_id, route_id, clock.now, clock.now, attempt_count, error_message
    FROM clock CROSS JOIN changed
    WHERE verdict = 'bury' AND lane >= $19::smallint
)
SELECT place, CASE WHEN settled <> 'stale' THEN settled ELSE coalesce((
        SELECT a.settled FROM attempts a
        WHERE a.notification_id = judged.notification_id AND a.attempt_id = judged.token AND a.verdict = judged.verdict
    ), (
        SELECT r.settled_by FROM routes r
        WHERE r.notification_id = judged.notification_id AND r.route_id = judged.route_id
          AND r.finished_by = judged.token AND judged.verdict = 'finish'
    ), 'stale') END AS settled
FROM judged;
