-- The claim: what is due, in turns over groups. All of it runs in one transaction that began with BEGIN IMMEDIATE.

-- name: claimable
-- only: PostgreSQL looks and leases in one statement without a lock of everything
SELECT EXISTS (
    SELECT 1 FROM due d WHERE d.lane = :lane AND d.provider = :provider
) OR EXISTS (
    SELECT 1 FROM routes r
    WHERE r.lane = :lane AND r.provider = :provider AND r.ticket IS NULL AND r.next_attempt_at IS NOT NULL
      AND r.next_attempt_at <= :now
) OR EXISTS (
    SELECT 1 FROM leases l WHERE l.expires_at <= :now
);

-- name: expired
-- only: PostgreSQL does it in the statement that claims
SELECT lease_id, owner, expires_at, tickets FROM leases WHERE expires_at <= :now ORDER BY expires_at LIMIT 16;

-- name: lapse
-- only: PostgreSQL does it in the statement that claims
-- Race: a worker that died, or that comes back too late.
--   ticket                  a new one, so that the late holder is told from the next. A route that was settled has another or none.
--   attempt_count + 1       counted here, so that a message that kills its worker uses up its budget.
UPDATE routes
SET ticket = :ticket, next_attempt_at = :due_at, attempt_count = attempt_count + 1, lease_owner = :owner,
    claimed_at = :due_at, updated_at = :now
WHERE ticket = :held AND next_attempt_at IS NOT NULL AND status IN ('pending', 'failed');

-- name: ripe
-- only: PostgreSQL does it in the statement that claims
-- What has become due since.
SELECT r.rowid AS place FROM routes r
WHERE r.lane = :lane AND r.provider = :provider AND r.ticket IS NULL AND r.next_attempt_at IS NOT NULL
  AND r.next_attempt_at <= :now
ORDER BY r.next_attempt_at
LIMIT :most;

-- name: ripen
-- only: PostgreSQL does it in the statement that claims
UPDATE routes SET ticket = :ticket, turn = NULL, claim_token = NULL WHERE rowid = :place;

-- name: queue_tickets
-- only: PostgreSQL does it in the statement that gives the tickets
-- Every route that got a ticket in this transaction and that nobody holds.
INSERT INTO due (lane, provider, grp, due_at, ticket)
SELECT r.lane, r.provider, r.grp, r.next_attempt_at, r.ticket FROM routes r
WHERE r.ticket > :last AND r.next_attempt_at IS NOT NULL;

-- name: next_group
-- only: PostgreSQL walks over the groups in the statement that claims
-- The head of the next group in the turns, by one look into the index.
SELECT d.grp, d.due_at <= :now AS due FROM due d
WHERE d.lane = :lane AND d.provider = :provider AND d.grp > :after
ORDER BY d.grp, d.due_at
LIMIT 1;

-- name: places_taken
-- only: PostgreSQL counts in the statement that claims
SELECT (SELECT coalesce(sum(json_array_length(l.tickets)), 0) FROM leases l WHERE l.grp = :grp) + (
    SELECT count(*) FROM routes r WHERE r.grp = :grp AND r.grp < 0 AND r.claim_token IS NOT NULL AND r.turn IS NULL);

-- name: claim_candidates
-- only: PostgreSQL picks and leases in one statement
--   goal                    a route of a chain whose goal another route of the person has reached is stopped, as by a cancel.
--   wishes_json             the person may have left the category while the message waited.
--   r.ticket                the route is read and not written: the row of `due` stands for the route.
SELECT d.due_at, r.ticket AS token, r.notification_id, r.route_id, r.channel, r.recipient_ref, r.lane, r.provider, r.policy,
       r.attempt_count + 1 AS attempt, r.provider_since AS attempts_before, r.max_attempts,
       max((:now - r.budget_since) / 1000.0, 0) AS age_seconds,
       n.notification_type, n.producer, n.payload_json, n.accepted_at AS accepted_at_ms,
       r.address, n.user_id, n.tenant_id, r.resolved_locale, r.message_json, n.metadata_json, n.request_id, n.trace_id,
       n.audience_kind, n.idempotency_key AS intent_key, r.lease_owner IS NOT NULL AS abandoned,
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
FROM due d CROSS JOIN routes r ON r.ticket = d.ticket CROSS JOIN records n ON n.notification_id = r.notification_id
WHERE d.lane = :lane AND d.provider = :provider AND d.grp = :grp AND d.due_at <= :now
  AND r.next_attempt_at IS NOT NULL AND r.status IN ('pending', 'failed')
ORDER BY d.due_at, d.ticket
LIMIT :most;

-- name: claim
-- What was picked is the head of its group, so one statement removes it.
DELETE FROM due
WHERE lane = :lane AND provider = :provider AND grp = :grp AND (due_at, ticket) <= (:due_at, :ticket);

-- name: lease
-- only: PostgreSQL leases in the statement that claims
INSERT INTO leases (lease_id, grp, owner, claimed_at, expires_at, tickets)
VALUES (:lease_id, :grp, :owner, :now, :lease_until, :tickets);

-- name: end_leases
-- only: PostgreSQL does it in the statement that settles
DELETE FROM leases WHERE lease_id IN (SELECT value FROM json_each(:leases));

-- name: free_places
-- only: PostgreSQL does it in the statement that settles
-- A lease of a group with a cap loses the settled tickets; a repeat frees nothing twice.
UPDATE leases SET tickets = (
    SELECT json_group_array(t.value) FROM json_each(leases.tickets) t
    WHERE t.value NOT IN (SELECT value FROM json_each(:tokens)))
WHERE lease_id IN (SELECT value FROM json_each(:leases));
