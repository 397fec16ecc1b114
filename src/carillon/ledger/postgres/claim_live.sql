-- The claim of live streams: as `claim` in claim.sql, but over the routes themselves. The lease is in the route's row, because the table
-- `notifications` shows it and its pickers take it there by statements of their own.

-- name: claim_live
-- Races: other claimers, pickers of the table `notifications`, late settlements, a worker that died.
--   'sse'                   the routes of live streams have no tickets; their index of turns has no others.
--   turn                    a route in the turns has its group here, a leased route, a retry and a schedule have none. Each claim moves
--                           what has become due into the turns.
--   FOR NO KEY UPDATE       a route that a picker has locked is passed over.
--   next_attempt_at <= now  decides whether a route is due; `turn` only says where it stands.
--   ctid                    safe only because the row is locked by this very statement.
--   attempt_count + 1       counted here, so that a message that kills its worker uses up its budget.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), ripe AS MATERIALIZED (
    SELECT waiting.place
    FROM unnest($1::smallint[], (SELECT $2::text[])) AS want (lane, provider)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS place
        FROM routes r
        WHERE r.lane = want.lane AND r.provider = want.provider AND r.channel = 'sse' AND r.turn IS NULL
          AND r.next_attempt_at IS NOT NULL AND r.next_attempt_at <= (SELECT now FROM clock)
        ORDER BY r.turn, r.next_attempt_at
        LIMIT $15
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS waiting
), moved AS (
    UPDATE routes r SET turn = r.grp FROM ripe WHERE r.ctid = ripe.place RETURNING TRUE
), picked AS MATERIALIZED (
    SELECT in_order_of_wants.*, row_number() OVER (PARTITION BY grp ORDER BY token) AS nth
    FROM (
        SELECT turn.*, nextval('claim_tokens') AS token
        FROM (
            SELECT each.*, $14::jsonb -> each.provider AS ahead_of
            FROM unnest($1::smallint[], $2::text[], $3::int[], $4::bigint[], (SELECT $5::int[]))
                AS each (lane, provider, most, served, cap)
            OFFSET 0
        ) AS want
        CROSS JOIN LATERAL (
            WITH RECURSIVE after AS (
                (SELECT r.turn AS grp, r.next_attempt_at FROM routes r
                 WHERE r.lane = want.lane AND r.provider = want.provider AND r.channel = 'sse' AND r.next_attempt_at IS NOT NULL
                   AND r.turn > want.served
                 ORDER BY r.turn, r.next_attempt_at LIMIT 1)
                UNION ALL
                SELECT following.* FROM after CROSS JOIN LATERAL (
                    SELECT r.turn AS grp, r.next_attempt_at FROM routes r
                    WHERE r.lane = want.lane AND r.provider = want.provider AND r.channel = 'sse' AND r.next_attempt_at IS NOT NULL
                      AND r.turn > after.grp
                    ORDER BY r.turn, r.next_attempt_at LIMIT 1) AS following
            ), before AS (
                (SELECT r.turn AS grp, r.next_attempt_at FROM routes r
                 WHERE r.lane = want.lane AND r.provider = want.provider AND r.channel = 'sse' AND r.next_attempt_at IS NOT NULL
                   AND r.turn <= want.served
                 ORDER BY r.turn, r.next_attempt_at LIMIT 1)
                UNION ALL
                SELECT following.* FROM before CROSS JOIN LATERAL (
                    SELECT r.turn AS grp, r.next_attempt_at FROM routes r
                    WHERE r.lane = want.lane AND r.provider = want.provider AND r.channel = 'sse' AND r.next_attempt_at IS NOT NULL
                      AND r.turn > before.grp AND r.turn <= want.served
                    ORDER BY r.turn, r.next_attempt_at LIMIT 1) AS following
            ), ring AS MATERIALIZED (
                SELECT g.grp, coalesce(own.weight, 1) AS weight, places.free, places.ahead, s.fence
                FROM (SELECT * FROM after UNION ALL SELECT * FROM before) AS g
                LEFT JOIN LATERAL (
                    SELECT special.weight, special.cap
                    FROM unnest($10::text[], $11::bigint[], $12::int[], $13::int[]) AS special (provider, grp, weight, cap)
                    WHERE special.provider = want.provider AND special.grp = abs(g.grp)
                    LIMIT 1
                ) AS own ON TRUE
                LEFT JOIN LATERAL (
                    SELECT cap.calls + cap.ahead - count(taken.*)::int AS free, cap.ahead
                    FROM (
                        SELECT coalesce(own.cap, want.cap) AS calls, coalesce((want.ahead_of ->> abs(g.grp)::text)::int, 0) AS ahead
                    ) AS cap
                    LEFT JOIN LATERAL (
                        SELECT r.grp FROM routes r
                        WHERE r.grp = g.grp AND r.grp < 0 AND r.claim_token IS NOT NULL AND r.turn IS NULL
                        LIMIT cap.calls + cap.ahead) AS taken ON TRUE
                    GROUP BY cap.calls, cap.ahead
                ) AS places ON g.grp < 0
                LEFT JOIN slots s ON s.grp = g.grp AND places.free IS NOT NULL
                WHERE g.next_attempt_at <= (SELECT now FROM clock)
                  AND ((want.provider, abs(g.grp)) IN (SELECT * FROM unnest($8::text[], $9::bigint[]))) IS NOT TRUE
                  AND (places.free > 0) IS NOT FALSE
                LIMIT want.most
            ), share AS MATERIALIZED (
                SELECT greatest(want.most / greatest(sum(ring.weight), 1), 1)::int AS each FROM ring
            ), first AS MATERIALIZED (
                SELECT ring.grp, ring.free, ring.ahead, ring.fence, due.*
                FROM ring CROSS JOIN LATERAL (
                    SELECT r.ctid AS place, r.notification_id, r.claim_token IS NOT NULL AS abandoned
                    FROM routes r
                    WHERE r.lane = want.lane AND r.provider = want.provider AND r.channel = 'sse' AND r.next_attempt_at IS NOT NULL
                      AND r.turn = ring.grp AND r.next_attempt_at <= (SELECT now FROM clock)
                    ORDER BY r.next_attempt_at
                    LIMIT least((SELECT each FROM share) * ring.weight, ring.free)
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS due
            ), lacking AS MATERIALIZED (
                SELECT (want.most - count(*))::int AS rows FROM first
            ), more AS (
                SELECT fuller.grp, fuller.free, fuller.ahead, fuller.fence, due.*
                FROM (
                    SELECT counted.*, ceil((SELECT rows FROM lacking)::float8 / count(*) OVER ())::int AS each
                    FROM (
                        SELECT joined.*, sum(joined.taken) OVER (PARTITION BY joined.grp) AS had
                        FROM (
                            SELECT ring.*, 0 AS taken FROM ring
                            UNION ALL
                            SELECT f.grp, NULL, NULL, NULL, NULL, 1 FROM first f
                        ) AS joined
                        WHERE (SELECT rows FROM lacking) > 0
                    ) AS counted
                    WHERE counted.had >= (SELECT each FROM share) * counted.weight AND (counted.had < counted.free) IS NOT FALSE
                ) AS fuller
                CROSS JOIN LATERAL (
                    SELECT r.ctid AS place, r.notification_id, r.claim_token IS NOT NULL AS abandoned
                    FROM routes r
                    WHERE r.lane = want.lane AND r.provider = want.provider AND r.channel = 'sse' AND r.next_attempt_at IS NOT NULL
                      AND r.turn = fuller.grp AND r.next_attempt_at <= (SELECT now FROM clock)
                    ORDER BY r.next_attempt_at
                    LIMIT least(fuller.each, fuller.free - fuller.had) OFFSET fuller.had
                    FOR NO KEY UPDATE SKIP LOCKED
                ) AS due
            )
            SELECT * FROM first
            UNION ALL
            SELECT * FROM more
            LIMIT want.most
        ) AS turn
        WHERE NOT ($17::boolean AND EXISTS (SELECT FROM ripe))
        LIMIT $6
    ) AS in_order_of_wants
), fenced AS (
    INSERT INTO slots AS s (grp, fence, before, taken_at)
    SELECT grp, max(token), max(picked.fence), clock.now
    FROM picked CROSS JOIN clock WHERE nth <= free GROUP BY grp, clock.now ORDER BY grp
    ON CONFLICT (grp) DO UPDATE
    SET fence = excluded.fence, before = excluded.before, taken_at = excluded.taken_at
    WHERE s.fence = excluded.before
    RETURNING s.grp
)
UPDATE routes r
SET claim_token = picked.token,
    lease_owner = $7,
    claimed_at = clock.now,
    attempt_count = r.attempt_count + 1,
    next_attempt_at = clock.now + $16::float8 * interval '1 second',
    turn = NULL,
    updated_at = clock.now
FROM picked
JOIN records n ON n.notification_id = picked.notification_id
CROSS JOIN clock
WHERE r.ctid = picked.place
  AND (picked.free IS NULL OR (picked.nth <= picked.free AND (picked.grp IN (SELECT grp FROM fenced)) IS TRUE))
RETURNING r.notification_id, r.route_id, r.claim_token AS token, r.channel, r.recipient_ref, r.lane, r.provider,
    r.policy, r.attempt_count AS attempt, r.provider_since AS attempts_before, r.max_attempts,
    greatest(date_part('epoch', clock.now - r.budget_since), 0) AS age_seconds,
    n.notification_type, n.producer, n.payload_json,
    (date_part('epoch', date_trunc('milliseconds', n.accepted_at)) * 1000)::bigint AS accepted_at_ms,
    r.address, n.user_id, n.tenant_id, r.resolved_locale, r.message_json, n.metadata_json, n.request_id, n.trace_id,
    n.audience_kind, n.idempotency_key AS intent_key, picked.abandoned,
    CASE WHEN (SELECT EXISTS (SELECT FROM suppressions)) THEN (
        SELECT json_build_object('suppression_id', s.suppression_id, 'kind', s.kind,
                                 'until_ms', (date_part('epoch', s.expires_at) * 1000)::bigint)::text
        FROM suppressions s
        WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
          AND (s.expires_at IS NULL OR s.expires_at > clock.now)
          AND NOT EXISTS (
              SELECT FROM suppressions l
              WHERE l.channel = s.channel AND l.address = s.address AND l.tenant_id IN ('', n.tenant_id)
                AND (coalesce(l.expires_at, 'infinity'), l.tenant_id)
                    > (coalesce(s.expires_at, 'infinity'), s.tenant_id))
        LIMIT 1
    ) END AS suppression_json,
    n.category,
    -- if api
    CASE WHEN n.category IS NOT NULL THEN (
        SELECT json_build_object('channels', p.channels_json::json, 'categories', p.categories_json::json)::text
        FROM preferences p
        WHERE p.tenant_id = coalesce(n.tenant_id, '')
          AND p.user_id = CASE WHEN r.recipient_ref LIKE 'user:%' THEN substr(r.recipient_ref, 6)
                               ELSE split_part(r.recipient_ref, ':', 1) || ':' || r.address END
    ) END AS wishes_json,
    -- else
    NULL::text AS wishes_json,
    -- end
    r.ctid AS place, r.grp AS "group", (picked.nth > picked.free - picked.ahead) IS TRUE AS ahead,
    date_part('epoch', n.expires_at - clock.now) AS expires_in,
    coalesce(n.stopped, CASE WHEN r.goal IS NOT NULL THEN (
        SELECT 'reached:' || r.goal || ' on ' || e.channel FROM routes e
        WHERE e.notification_id = r.notification_id AND e.recipient_ref = r.recipient_ref AND e.route_id <> r.route_id
          AND CASE r.goal WHEN 'delivered' THEN e.delivered_at WHEN 'read' THEN e.opened_at ELSE e.clicked_at END IS NOT NULL
        ORDER BY e.step LIMIT 1
    ) END) AS stopped,
    n.priority, r.goal, 0::bigint AS lease;
