-- The claim of live streams: as in claim.sql, but over the routes themselves. The lease is in the route's row, because the table
-- `notifications` shows it and its pickers take it there by statements of their own.

-- name: claimable_live
-- only: PostgreSQL looks and leases in one statement without a lock of everything
SELECT EXISTS (
    SELECT 1 FROM routes r
    WHERE r.lane = :lane AND r.provider = :provider AND r.channel = 'sse' AND r.turn IS NULL AND r.next_attempt_at IS NOT NULL
      AND r.next_attempt_at <= :now
) OR EXISTS (
    SELECT 1 FROM routes r
    WHERE r.lane = :lane AND r.provider = :provider AND r.channel = 'sse' AND r.turn IS NOT NULL AND r.next_attempt_at IS NOT NULL
      AND r.next_attempt_at <= :now
);

-- name: ripen_live
-- only: PostgreSQL does it in the statement that claims
-- What has become due since, an expired lease like a retry, goes into the turns.
UPDATE routes SET turn = grp
WHERE rowid IN (
    SELECT r.rowid FROM routes r
    WHERE r.lane = :lane AND r.provider = :provider AND r.channel = 'sse' AND r.turn IS NULL AND r.next_attempt_at IS NOT NULL
      AND r.next_attempt_at <= :now
    ORDER BY r.next_attempt_at
    LIMIT :most
);

-- name: next_group_live
-- only: PostgreSQL walks over the groups in the statement that claims
-- The head of the next group in the turns, by one look into the index.
SELECT r.turn AS grp, r.next_attempt_at <= :now AS due FROM routes r
WHERE r.lane = :lane AND r.provider = :provider AND r.channel = 'sse' AND r.next_attempt_at IS NOT NULL AND r.turn > :after
ORDER BY r.turn, r.next_attempt_at
LIMIT 1;

-- name: claim_candidates_live
-- only: PostgreSQL picks and leases in one statement
--   wishes_json             the person may have left the category while the message waited.
--   next_attempt_at <= now  decides whether a route is due; `turn` only says where it stands.
SELECT r.rowid AS place, r.notification_id, r.route_id, r.channel, r.recipient_ref, r.lane, r.provider, r.policy,
       r.attempt_count + 1 AS attempt, r.provider_since AS attempts_before, r.max_attempts,
       max((:now - r.budget_since) / 1000.0, 0) AS age_seconds,
       n.notification_type, n.producer, n.payload_json, n.accepted_at AS accepted_at_ms,
       r.address, n.user_id, n.tenant_id, r.resolved_locale, r.message_json, n.metadata_json, n.request_id, n.trace_id,
       n.audience_kind, n.idempotency_key AS intent_key, r.claim_token IS NOT NULL AS abandoned,
       (
           SELECT json_object('suppression_id', s.suppression_id, 'kind', s.kind, 'until_ms', s.expires_at)
           FROM suppressions s
           WHERE s.channel = r.channel AND s.address = r.address AND s.tenant_id IN ('', n.tenant_id)
             AND (s.expires_at IS NULL OR s.expires_at > :now)
           ORDER BY s.expires_at IS NULL DESC, s.expires_at DESC, s.tenant_id DESC
           LIMIT 1
       ) AS suppression_json,
       n.category,
       -- if api
       CASE WHEN n.category IS NOT NULL THEN (
           SELECT json_object('channels', json(p.channels_json), 'categories', json(p.categories_json))
           FROM preferences p
           WHERE p.tenant_id = coalesce(n.tenant_id, '')
             AND p.user_id = CASE WHEN r.recipient_ref LIKE 'user:%' THEN substr(r.recipient_ref, 6)
                                  ELSE substr(r.recipient_ref, 1, instr(r.recipient_ref, ':')) || r.address END
       ) END AS wishes_json,
       -- else
       NULL AS wishes_json,
       -- end
       r.grp AS "group", (n.expires_at - :now) / 1000.0 AS expires_in,
       coalesce(n.stopped, CASE WHEN r.goal IS NOT NULL THEN (
           SELECT 'reached:' || r.goal || ' on ' || e.channel FROM routes e
           WHERE e.notification_id = r.notification_id AND e.recipient_ref = r.recipient_ref AND e.route_id <> r.route_id
             AND CASE r.goal WHEN 'delivered' THEN e.delivered_at WHEN 'read' THEN e.opened_at ELSE e.clicked_at END IS NOT NULL
           ORDER BY e.step IS NULL, e.step LIMIT 1
       ) END) AS stopped,
       n.priority, r.goal
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.lane = :lane AND r.provider = :provider AND r.channel = 'sse' AND r.next_attempt_at IS NOT NULL AND r.turn = :grp
  AND r.next_attempt_at <= :now
ORDER BY r.next_attempt_at
LIMIT :most;

-- name: claim_live
-- Race: a worker that died, or that comes back too late.
--   claim_token             a new one each time, so that the earlier holder can be told from the present one.
--   attempt_count + 1       counted here, so that a message that kills its worker uses up its budget.
UPDATE routes
SET claim_token = :token, lease_owner = :owner, claimed_at = :now, attempt_count = attempt_count + 1,
    next_attempt_at = :lease_until, turn = NULL, updated_at = :now
WHERE rowid = :place;
