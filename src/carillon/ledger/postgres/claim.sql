-- The claim: what is due, in turns over groups.

-- name: claim
-- Races: other claimers, late settlements, cancelling, a worker that died.
--   (SELECT $2), (SELECT $5)  hide from the planner how many there are, as in `enrol`.
--   expired, lapsed         a lease that ran out: of its routes, those that still have the lease's ticket get a new one and are due
--                           again, so the late holder is told from the next. The attempt is counted here, so that a message that
--                           kills its worker uses up its budget. Routes that were settled have another ticket or none.
--   ripe                    what has become due since gets a ticket and goes into the turns, at most $15 at a time.
--   r.ticket, ...           the order of the index: without the first, a flood of ripe routes would be sorted in every claim.
--   $17                     take nothing if there was something ripe: a caller that got nothing asks again, without this, and finds
--                           it before what came later. So no claim waits for a flood of it.
--   after, before           the head of each group in the turns, each found by one look into the index: the groups behind the one
--                           served last, then those up to it. They are read no further than the claim has room for.
--   free                    how many places a group with a cap has left; a full group and an excluded one are passed over. A place is
--                           a lease of its own, or a claim in a row that an older process holds.
--   ahead                   a process that calls the group already gets more, as many as it asks for, to take over the places of its own calls:
--                           what is calling never exceeds the cap.
--   SKIP LOCKED             claimers never wait for each other and never share a route. What is locked by somebody who ends or moves
--                           the route is passed over; what they removed is not there.
--   (SELECT now ...)        reads the server's clock once and lets the index stop there; a bare clock_timestamp() is
--                           volatile and would be compared row by row.
--   more                    what the groups left unused goes to those that have more than their share.
--   MATERIALIZED            the rows are picked exactly once; a re-run sub-select would lease more than its limit.
--   nth                     routes of one group may wait in several lanes: its places are counted over all of them.
--   fenced                  another process that takes places of the group at this moment: its rows are not in our snapshot, but its
--                           fence is in the row. The second one finds another fence than it saw, and leaves the group alone.
--   held_apart              the claims of a group with a cap have a lease of their own, whose number is the fence.
--   joined, OVER (...)      joins what was found of each group by sorting it. Two passages cannot be joined by hash or merge here, and
--                           a loop would compare every group with every other: 0.1 s for 800 groups.
--   caps, no caps           a claim without groups that have a cap leaves the passages of `caps` out: they cost 0.3 ms.
--   floors, no floors       beside a transaction that stays open, rows that were taken long ago are still at the head of their group. A group with
--                           a floor is read behind the row that this process took last, and the walk over groups ends before the rows of such a
--                           group (`known`) and goes on behind them. A row that comes before a floor later waits until the floor ends (`Floors`).
--   $23                     the leases that ended long ago are such rows as well: most claims look for those that ended lately.
--   since                   never later than half a second ago: an acceptance writes its time before it commits.
--   ctid                    safe only because the row is locked by this very statement.
--   OFFSET 0                one look into an index for each claim; a plan made for a small table would read all of it.
--   r.ticket                the route is read and not written: `due` and the route change in one commit, so that the row of
--                           `due` stands for the route.
--   (SELECT EXISTS ...)     most ledgers have no suppressions: asked once, not for each route.
--   NOT EXISTS              as in `enrol`: the suppression that holds longer counts.
--   goal                    a route of a chain whose goal another route of the person has reached is stopped, as by a cancel: one
--                           look at the routes of the notification, and only for chains.
--   wishes_json             the person may have left the category while the message waited: one look-up by key, and only
--                           for messages with a category.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), expired AS (
    DELETE FROM leases WHERE lease_id = ANY (ARRAY(
        SELECT l.lease_id FROM leases l
        WHERE l.expires_at <= (SELECT now FROM clock)
-- floors
          AND l.expires_at > (SELECT now FROM clock) - $23::float8 * interval '1 second'
-- end of floors
        ORDER BY l.expires_at LIMIT 16
        FOR UPDATE SKIP LOCKED))
    RETURNING owner, expires_at, tickets
), lapsed AS (
    UPDATE routes r
    SET ticket = nextval('claim_tokens'), next_attempt_at = held.expires_at, attempt_count = r.attempt_count + 1,
        lease_owner = held.owner, claimed_at = held.expires_at, updated_at = clock.now
    FROM clock CROSS JOIN (
        SELECT expired.owner, expired.expires_at, member.ticket
        FROM expired CROSS JOIN LATERAL unnest(expired.tickets) AS member (ticket)
    ) AS held
    WHERE r.ticket = held.ticket AND r.next_attempt_at IS NOT NULL AND r.status IN ('pending', 'failed')
    RETURNING r.lane, r.provider, r.grp, r.next_attempt_at, r.ticket
), ripe AS MATERIALIZED (
    SELECT waiting.place
    FROM unnest($1::smallint[], (SELECT $2::text[])) AS want (lane, provider)
    CROSS JOIN LATERAL (
        SELECT r.ctid AS place
        FROM routes r
        WHERE r.lane = want.lane AND r.provider = want.provider AND r.ticket IS NULL
          AND r.next_attempt_at IS NOT NULL AND r.next_attempt_at <= (SELECT now FROM clock)
        ORDER BY r.ticket, r.next_attempt_at
        LIMIT $15
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS waiting
), moved AS (
    UPDATE routes r SET ticket = nextval('claim_tokens'), turn = NULL, claim_token = NULL
    FROM ripe WHERE r.ctid = ripe.place
    RETURNING r.lane, r.provider, r.grp, r.next_attempt_at, r.ticket
), queued AS (
    INSERT INTO due (lane, provider, grp, due_at, ticket)
    SELECT * FROM moved UNION ALL SELECT * FROM lapsed
-- floors
), floors AS MATERIALIZED (
    SELECT f.lane, f.provider, f.grp, least(f.due_at, latest.at) AS since, CASE WHEN f.due_at <= latest.at THEN f.ticket ELSE 0 END AS passed
    FROM unnest($18::smallint[], $19::text[], $20::bigint[], $21::timestamptz[], $22::bigint[]) AS f (lane, provider, grp, due_at, ticket)
    CROSS JOIN (SELECT now - interval '0.5 s' AS at FROM clock) AS latest
-- end of floors
), picked AS MATERIALIZED (
    SELECT in_order_of_wants.*
-- caps
        , row_number() OVER (PARTITION BY grp ORDER BY seq) AS nth
-- end of caps
    FROM (
        SELECT turn.*, row_number() OVER () AS seq
        FROM (
            SELECT each.*, $14::jsonb -> each.provider AS ahead_of
            FROM unnest($1::smallint[], $2::text[], $3::int[], $4::bigint[], (SELECT $5::int[]))
                AS each (lane, provider, most, served, cap)
            OFFSET 0
        ) AS want
        CROSS JOIN LATERAL (
-- no floors
            WITH RECURSIVE after AS (
                (SELECT d.grp, d.due_at FROM due d
                 WHERE d.lane = want.lane AND d.provider = want.provider AND d.grp > want.served
                 ORDER BY d.grp, d.due_at LIMIT 1)
                UNION ALL
                SELECT following.* FROM after CROSS JOIN LATERAL (
                    SELECT d.grp, d.due_at FROM due d
                    WHERE d.lane = want.lane AND d.provider = want.provider AND d.grp > after.grp
                    ORDER BY d.grp, d.due_at LIMIT 1) AS following
            ), before AS (
                (SELECT d.grp, d.due_at FROM due d
                 WHERE d.lane = want.lane AND d.provider = want.provider AND d.grp <= want.served
                 ORDER BY d.grp, d.due_at LIMIT 1)
                UNION ALL
                SELECT following.* FROM before CROSS JOIN LATERAL (
                    SELECT d.grp, d.due_at FROM due d
                    WHERE d.lane = want.lane AND d.provider = want.provider AND d.grp > before.grp AND d.grp <= want.served
                    ORDER BY d.grp, d.due_at LIMIT 1) AS following
-- end of no floors
-- floors
            WITH heads AS (
                SELECT walk.*
                FROM (VALUES (want.served, 9223372036854775807), ('-9223372036854775808'::bigint, want.served)) AS part (behind, to_grp)
                CROSS JOIN LATERAL (
                    WITH RECURSIVE step AS (
                        SELECT part.behind AS grp, NULL::timestamptz AS due_at, NULL::timestamptz AS since, NULL::bigint AS passed
                        UNION ALL
                        SELECT following.*
                        FROM step
                        CROSS JOIN LATERAL (
                            SELECT min(f.grp) AS grp FROM floors f
                            WHERE f.lane = want.lane AND f.provider = want.provider AND f.grp > step.grp AND f.grp <= part.to_grp
                        ) AS known
                        CROSS JOIN LATERAL (
                            (SELECT d.grp, d.due_at, timestamptz '-infinity', bigint '0' FROM due d
                             WHERE d.lane = want.lane AND d.provider = want.provider AND d.grp > step.grp
                               AND d.grp <= coalesce(known.grp - 1, part.to_grp)
                             ORDER BY d.grp, d.due_at LIMIT 1)
                            UNION ALL
                            (SELECT f.grp, coalesce(head.due_at, 'infinity'), f.since, f.passed
                             FROM floors f
                             LEFT JOIN LATERAL (
                                 SELECT d.due_at FROM due d
                                 WHERE d.lane = f.lane AND d.provider = f.provider AND d.grp = f.grp
                                   AND (d.due_at, d.ticket) > (f.since, f.passed)
                                 ORDER BY d.due_at, d.ticket LIMIT 1
                             ) AS head ON TRUE
                             WHERE f.lane = want.lane AND f.provider = want.provider AND f.grp = known.grp)
                            LIMIT 1
                        ) AS following
                    )
                    SELECT * FROM step WHERE due_at IS NOT NULL
                ) AS walk
-- end of floors
            ), ring AS MATERIALIZED (
                SELECT g.grp, coalesce(own.weight, 1) AS weight
-- caps
                       , places.free, places.ahead, s.fence
-- end of caps
-- no caps
                       , NULL::int AS free, NULL::int AS ahead, NULL::bigint AS fence
-- end of no caps
-- floors
                       , g.since, g.passed
                FROM heads AS g
-- end of floors
-- no floors
                       , NULL::timestamptz AS since, NULL::bigint AS passed
                FROM (SELECT * FROM after UNION ALL SELECT * FROM before) AS g
-- end of no floors
                LEFT JOIN LATERAL (
                    SELECT special.weight, special.cap
                    FROM unnest($10::text[], $11::bigint[], $12::int[], $13::int[]) AS special (provider, grp, weight, cap)
                    WHERE special.provider = want.provider AND special.grp = abs(g.grp)
                    LIMIT 1
                ) AS own ON TRUE
-- caps
                LEFT JOIN LATERAL (
                    SELECT cap.calls + cap.ahead - count(taken.*)::int AS free, cap.ahead
                    FROM (
                        SELECT coalesce(own.cap, want.cap) AS calls, coalesce((want.ahead_of ->> abs(g.grp)::text)::int, 0) AS ahead
                    ) AS cap
                    LEFT JOIN LATERAL (
                        SELECT unnest(l.tickets) FROM leases l WHERE l.grp = g.grp
                        UNION ALL
                        SELECT r.claim_token FROM routes r
                        WHERE r.grp = g.grp AND r.grp < 0 AND r.claim_token IS NOT NULL AND r.turn IS NULL) AS taken ON TRUE
                    GROUP BY cap.calls, cap.ahead
                ) AS places ON g.grp < 0
                LEFT JOIN slots s ON s.grp = g.grp AND places.free IS NOT NULL
-- end of caps
                WHERE g.due_at <= (SELECT now FROM clock)
                  AND ((want.provider, abs(g.grp)) IN (SELECT * FROM unnest($8::text[], $9::bigint[]))) IS NOT TRUE
-- caps
                  AND (places.free > 0) IS NOT FALSE
-- end of caps
                LIMIT want.most
            ), share AS MATERIALIZED (
                SELECT greatest(want.most / greatest(sum(ring.weight), 1), 1)::int AS each FROM ring
            ), first AS MATERIALIZED (
                SELECT ring.grp, ring.free, ring.ahead, ring.fence, due.*
                FROM ring CROSS JOIN LATERAL (
                    SELECT d.ctid AS place, d.ticket
                    FROM due d
                    WHERE d.lane = want.lane AND d.provider = want.provider AND d.grp = ring.grp AND d.due_at <= (SELECT now FROM clock)
-- floors
                      AND (d.due_at, d.ticket) > (ring.since, ring.passed)
-- end of floors
                    ORDER BY d.due_at
                    LIMIT least((SELECT each FROM share) * ring.weight, ring.free)
                    FOR UPDATE SKIP LOCKED
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
                            SELECT f.grp, NULL, NULL, NULL, NULL, NULL, NULL, 1 FROM first f
                        ) AS joined
                        WHERE (SELECT rows FROM lacking) > 0
                    ) AS counted
                    WHERE counted.had >= (SELECT each FROM share) * counted.weight AND (counted.had < counted.free) IS NOT FALSE
                ) AS fuller
                CROSS JOIN LATERAL (
                    SELECT d.ctid AS place, d.ticket
                    FROM due d
                    WHERE d.lane = want.lane AND d.provider = want.provider AND d.grp = fuller.grp AND d.due_at <= (SELECT now FROM clock)
-- floors
                      AND (d.due_at, d.ticket) > (fuller.since, fuller.passed)
-- end of floors
                    ORDER BY d.due_at
                    LIMIT least(fuller.each, fuller.free - fuller.had) OFFSET fuller.had
                    FOR UPDATE SKIP LOCKED
                ) AS due
            )
            SELECT * FROM first
            UNION ALL
            SELECT * FROM more
            LIMIT want.most
        ) AS turn
        WHERE NOT ($17::boolean AND (EXISTS (SELECT FROM ripe) OR EXISTS (SELECT FROM lapsed)))
        LIMIT $6
    ) AS in_order_of_wants
-- caps
), fenced AS (
    INSERT INTO slots AS s (grp, fence, before, taken_at)
    SELECT grp, nextval('claim_tokens'), max(picked.fence), clock.now
    FROM picked CROSS JOIN clock WHERE nth <= free GROUP BY grp, clock.now ORDER BY grp
    ON CONFLICT (grp) DO UPDATE
    SET fence = excluded.fence, before = excluded.before, taken_at = excluded.taken_at
    WHERE s.fence = excluded.before
    RETURNING s.grp, s.fence
-- end of caps
), batch AS MATERIALIZED (
    SELECT nextval('claim_tokens') AS id
), taken AS MATERIALIZED (
-- caps
    SELECT found.place, found.ticket, found.seq, found.grp, found.won, coalesce(found.won, batch.id) AS lease,
           (found.nth > found.free - found.ahead) IS TRUE AS ahead
    FROM batch CROSS JOIN (
        SELECT joined.*, max(joined.fence) OVER (PARTITION BY joined.grp) AS won
        FROM (
            SELECT p.place, p.ticket, p.seq, p.grp, p.nth, p.free, p.ahead, NULL::bigint AS fence FROM picked p
            UNION ALL
            SELECT NULL, NULL, NULL, fenced.grp, NULL, NULL, NULL, fenced.fence FROM fenced
        ) AS joined
    ) AS found
    WHERE found.seq IS NOT NULL AND (found.free IS NULL OR (found.nth <= found.free AND found.won IS NOT NULL))
), held_apart AS (
    INSERT INTO leases (lease_id, grp, owner, claimed_at, expires_at, tickets)
    SELECT taken.won, taken.grp, $7, clock.now, clock.now + $16::float8 * interval '1 second', array_agg(taken.ticket ORDER BY taken.seq)
    FROM taken CROSS JOIN clock WHERE taken.won IS NOT NULL GROUP BY taken.won, taken.grp, clock.now
-- end of caps
-- no caps
    SELECT picked.place, picked.ticket, picked.seq, batch.id AS lease, FALSE AS ahead FROM picked CROSS JOIN batch
-- end of no caps
), gone AS (
    DELETE FROM due d WHERE d.ctid = ANY (ARRAY(SELECT place FROM taken))
), held AS (
    INSERT INTO leases (lease_id, grp, owner, claimed_at, expires_at, tickets)
    SELECT batch.id, NULL, $7, clock.now, clock.now + $16::float8 * interval '1 second', tickets.here
    FROM batch CROSS JOIN clock
    CROSS JOIN (SELECT array_agg(ticket) AS here FROM taken WHERE lease = (SELECT id FROM batch)) AS tickets
    WHERE tickets.here IS NOT NULL
)
SELECT r.notification_id, r.route_id, r.ticket AS token, r.channel, r.recipient_ref, r.lane, r.provider,
    r.policy, r.attempt_count + 1 AS attempt, r.provider_since AS attempts_before, r.max_attempts,
    greatest(date_part('epoch', clock.now - r.budget_since), 0) AS age_seconds,
    n.notification_type, n.producer, n.payload_json,
    (date_part('epoch', date_trunc('milliseconds', n.accepted_at)) * 1000)::bigint AS accepted_at_ms,
    r.address, n.user_id, n.tenant_id, r.resolved_locale, r.message_json, n.metadata_json, n.request_id, n.trace_id,
    n.audience_kind, n.idempotency_key AS intent_key, r.lease_owner IS NOT NULL AS abandoned,
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
    r.place, r.grp AS "group", taken.ahead,
    date_part('epoch', n.expires_at - clock.now) AS expires_in,
    coalesce(n.stopped, CASE WHEN r.goal IS NOT NULL THEN (
        SELECT 'reached:' || r.goal || ' on ' || e.channel FROM routes e
        WHERE e.notification_id = r.notification_id AND e.recipient_ref = r.recipient_ref AND e.route_id <> r.route_id
          AND CASE r.goal WHEN 'delivered' THEN e.delivered_at WHEN 'read' THEN e.opened_at ELSE e.clicked_at END IS NOT NULL
        ORDER BY e.step LIMIT 1
    ) END) AS stopped,
    n.priority, r.goal, taken.lease
-- floors
    , r.next_attempt_at AS due_at
-- end of floors
FROM taken
CROSS JOIN LATERAL (SELECT r.*, r.ctid AS place FROM routes r WHERE r.ticket = taken.ticket AND r.next_attempt_at IS NOT NULL OFFSET 0) AS r
CROSS JOIN LATERAL (SELECT n.* FROM records n WHERE n.notification_id = r.notification_id OFFSET 0) AS n
CROSS JOIN clock
WHERE r.status IN ('pending', 'failed')
ORDER BY taken.seq;
