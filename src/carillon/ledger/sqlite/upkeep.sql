-- Statements of operators and retention. Filters left out are NULL and match everything; the tenant '' is
-- the filter for rows without a tenant.

-- name: records
SELECT * FROM records
WHERE notification_id IN (SELECT value FROM json_each(:notification_ids)) AND (:tenant_id IS NULL OR tenant_id =
    :tenant_id)
ORDER BY accepted_at DESC, notification_id DESC;

-- name: routes
-- `held_by`, `held_since`, `held_until`: the lease of a claim under a ticket. `redriven_by`: the last redrive.
-- `group_calls`: how many claims hold a place of the group that a route in the turns waits for; for a claim of a group with a cap, how
-- many go before it. Who claims ahead calls in the order of claiming, and calls at least the first of its claims.
-- `in_quiet_hours`: it waits for their end, or expires before.
SELECT r.*, held.owner AS held_by, held.claimed_at AS held_since, held.expires_at AS held_until, r.ticket AS held_token,
       r.attempt_count + 1 AS held_attempt,
       r.status = 'pending' AND r.not_before > :now AND r.next_attempt_at <= r.not_before AS in_quiet_hours,
       CASE WHEN r.grp < 0 AND (r.turn IS NOT NULL OR (r.ticket IS NOT NULL AND held.owner IS NULL)) AND r.next_attempt_at IS NOT NULL
           THEN (SELECT coalesce(sum(json_array_length(l.tickets)), 0) FROM leases l WHERE l.grp = r.grp)
                + (SELECT count(*) FROM routes g
                   WHERE g.grp = r.grp AND g.grp < 0 AND g.claim_token IS NOT NULL AND g.turn IS NULL)
           WHEN held.nth > 1 OR EXISTS (
               SELECT 1 FROM leases l
               WHERE l.grp = held.grp AND l.owner = held.owner AND l.lease_id < held.lease_id AND json_array_length(l.tickets) > 0)
           THEN held.nth - 1 + (
               SELECT coalesce(sum(json_array_length(l.tickets)), 0) FROM leases l WHERE l.grp = held.grp AND l.lease_id < held.lease_id)
       END AS group_calls,
       -- if api
       (SELECT m.action_id FROM redriven_routes m WHERE m.notification_id = r.notification_id AND m.route_id = r.route_id)
           AS redriven_by
       -- else
       NULL AS redriven_by
       -- end
FROM routes r
LEFT JOIN (
    SELECT t.value AS ticket, l.lease_id, l.grp, l.owner, l.claimed_at, l.expires_at,
           CASE WHEN l.grp IS NOT NULL THEN t.key + 1 END AS nth
    FROM leases l, json_each(l.tickets) t
) AS held ON held.ticket = r.ticket
WHERE r.notification_id IN (SELECT value FROM json_each(:notification_ids))
ORDER BY r.notification_id, r.route_id;

-- name: attempts
-- As the view `attempts_told`, whose tables SQLite would read from end to end: it looks up no list of ids in a view.
SELECT attempt_id, notification_id, route_id, attempt, provider, outcome, classification, error, provider_message_id,
       started_at, duration_ms, verdict, delay_ms, settled
FROM attempts WHERE notification_id IN (SELECT value FROM json_each(:notification_ids))
UNION ALL
SELECT finished_by, notification_id, route_id, attempt_count, provider, 'sent', NULL, NULL, provider_message_id,
       published_at - CAST(round(took_ms) AS INTEGER), took_ms, 'finish', NULL, settled_by
FROM routes WHERE finished_by IS NOT NULL AND notification_id IN (SELECT value FROM json_each(:notification_ids))
ORDER BY notification_id, attempt_id;

-- name: search
-- The newest first. A published route is `vendor_queued`, `vendor_sent`, `received` or `opened` once its vendor said so.
--   near                    the next few thousand in the order of time, their routes looked up one by one: what is common fills the page
--                           here, however large the ledger is.
--   far                     what is rare. Each table is read once from end to end, which costs a quarter of a look by index for every row.
--                           The count of `near` is asked once, before the first row: a full page reads nothing of `far`.
--   NOT INDEXED             in the order of the file, and not in that of time.
--   few                     asked for what waits, and only some thousand routes do: `routes_due_idx` has them all, since a route waits
--                           exactly while it has a next attempt. A long queue fills the page from `near`.
WITH few AS MATERIALIZED (
    SELECT :statuses IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM json_each(:statuses) WHERE value NOT IN ('pending', 'failed'))
           AND (SELECT count(*) FROM (
                   SELECT 1 FROM routes INDEXED BY routes_due_idx WHERE next_attempt_at IS NOT NULL LIMIT 2001)) <= 2000
           AS waits
), near AS MATERIALIZED (
    SELECT n.notification_id, n.accepted_at
    FROM records n
    WHERE NOT (SELECT waits FROM few)
      AND n.accepted_at >= coalesce((
              SELECT w.accepted_at FROM records w
              WHERE w.accepted_at <= coalesce(:before_us / 1000, 9223372036854775807)
                AND w.accepted_at <= coalesce(:accepted_before_ms, 9223372036854775807)
              ORDER BY w.accepted_at DESC LIMIT 1 OFFSET max(20000, 4 * (:limit + :offset))), 0)
      AND (:user_id IS NULL OR n.user_id = :user_id)
      AND (:sent_by IS NULL OR n.sent_by = :sent_by)
      AND (:notification_type IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id IS NULL OR coalesce(n.tenant_id, '') = :tenant_id)
      AND (:trace_id IS NULL OR n.trace_id = :trace_id)
      AND (:origin IS NULL OR n.origin = :origin)
      AND (:accepted_after_ms IS NULL OR n.accepted_at >= :accepted_after_ms)
      AND (:accepted_before_ms IS NULL OR n.accepted_at < :accepted_before_ms)
      AND ((:statuses IS NULL AND :channel IS NULL AND :address IS NULL) OR EXISTS (
        SELECT 1 FROM routes r
        WHERE r.notification_id = n.notification_id
          AND (:statuses IS NULL OR (CASE
                   WHEN r.status <> 'published' THEN r.status WHEN r.opened_at IS NOT NULL THEN 'opened'
                   WHEN r.delivered_at IS NOT NULL THEN 'received'
                   WHEN r.receipt IN ('queued', 'sent') THEN 'vendor_' || r.receipt
                   ELSE 'published' END) IN (SELECT value FROM json_each(:statuses)))
          AND (:channel IS NULL OR r.channel = :channel)
          AND (:address IS NULL OR r.address = :address)))
      AND (:text IS NULL OR n.notification_id = :text OR n.user_id = :text OR n.trace_id = :text
           OR n.notification_type LIKE :text_prefix ESCAPE '\' OR EXISTS (
        SELECT 1 FROM routes r
        WHERE r.notification_id = n.notification_id
          AND (r.address = :text_address OR r.address LIKE :text_prefix ESCAPE '\'
               OR r.last_error_message LIKE :text_within ESCAPE '\')))
      AND (:before_us IS NULL OR (n.accepted_at, n.notification_id) < (:before_us / 1000, :before_id))
    ORDER BY n.accepted_at DESC, n.notification_id DESC
    LIMIT :limit + :offset
), far AS (
    SELECT n.notification_id, n.accepted_at
    FROM (SELECT 1 WHERE (SELECT count(*) FROM near) < :limit + :offset) AS further CROSS JOIN records n NOT INDEXED
    WHERE (:user_id IS NULL OR n.user_id = :user_id)
      AND (:sent_by IS NULL OR n.sent_by = :sent_by)
      AND (:notification_type IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id IS NULL OR coalesce(n.tenant_id, '') = :tenant_id)
      AND (:trace_id IS NULL OR n.trace_id = :trace_id)
      AND (:origin IS NULL OR n.origin = :origin)
      AND (:accepted_after_ms IS NULL OR n.accepted_at >= :accepted_after_ms)
      AND (:accepted_before_ms IS NULL OR n.accepted_at < :accepted_before_ms)
      AND ((:statuses IS NULL AND :channel IS NULL AND :address IS NULL) OR n.notification_id IN (
        SELECT r.notification_id FROM (SELECT 1 FROM few WHERE NOT waits) AS every CROSS JOIN routes r NOT INDEXED
        WHERE (:statuses IS NULL OR (CASE
                   WHEN r.status <> 'published' THEN r.status WHEN r.opened_at IS NOT NULL THEN 'opened'
                   WHEN r.delivered_at IS NOT NULL THEN 'received'
                   WHEN r.receipt IN ('queued', 'sent') THEN 'vendor_' || r.receipt
                   ELSE 'published' END) IN (SELECT value FROM json_each(:statuses)))
          AND (:channel IS NULL OR r.channel = :channel)
          AND (:address IS NULL OR r.address = :address)
        UNION ALL
        SELECT r.notification_id FROM (SELECT 1 FROM few WHERE waits) AS waiting CROSS JOIN routes r INDEXED BY routes_due_idx
        WHERE r.next_attempt_at IS NOT NULL
          AND r.status IN (SELECT value FROM json_each(:statuses))
          AND (:channel IS NULL OR r.channel = :channel)
          AND (:address IS NULL OR r.address = :address)))
      AND (:text IS NULL OR n.notification_id = :text OR n.user_id = :text OR n.trace_id = :text
           OR n.notification_type LIKE :text_prefix ESCAPE '\' OR n.notification_id IN (
        SELECT r.notification_id FROM routes r NOT INDEXED
        WHERE (r.address = :text_address OR r.address LIKE :text_prefix ESCAPE '\'
               OR r.last_error_message LIKE :text_within ESCAPE '\')))
      AND (:before_us IS NULL OR (n.accepted_at, n.notification_id) < (:before_us / 1000, :before_id))
)
SELECT notification_id, accepted_at * 1000 AS place
FROM (
    SELECT * FROM near WHERE (SELECT count(*) FROM near) = :limit + :offset
    UNION ALL
    SELECT * FROM far
)
ORDER BY accepted_at DESC, notification_id DESC
LIMIT :limit OFFSET :offset;

-- name: search_count
-- Runs in the snapshot of `search`, so that they agree, and counts no further than `most`. As `far` there.
SELECT count(*) AS total FROM (
    SELECT 1 FROM records n NOT INDEXED
    WHERE (:user_id IS NULL OR n.user_id = :user_id)
      AND (:sent_by IS NULL OR n.sent_by = :sent_by)
      AND (:notification_type IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id IS NULL OR coalesce(n.tenant_id, '') = :tenant_id)
      AND (:trace_id IS NULL OR n.trace_id = :trace_id)
      AND (:origin IS NULL OR n.origin = :origin)
      AND (:accepted_after_ms IS NULL OR n.accepted_at >= :accepted_after_ms)
      AND (:accepted_before_ms IS NULL OR n.accepted_at < :accepted_before_ms)
      AND ((:statuses IS NULL AND :channel IS NULL AND :address IS NULL) OR n.notification_id IN (
        SELECT r.notification_id FROM routes r NOT INDEXED
        WHERE (:statuses IS NULL OR (CASE
                   WHEN r.status <> 'published' THEN r.status WHEN r.opened_at IS NOT NULL THEN 'opened'
                   WHEN r.delivered_at IS NOT NULL THEN 'received'
                   WHEN r.receipt IN ('queued', 'sent') THEN 'vendor_' || r.receipt
                   ELSE 'published' END) IN (SELECT value FROM json_each(:statuses)))
          AND (:channel IS NULL OR r.channel = :channel)
          AND (:address IS NULL OR r.address = :address)))
      AND (:text IS NULL OR n.notification_id = :text OR n.user_id = :text OR n.trace_id = :text
           OR n.notification_type LIKE :text_prefix ESCAPE '\' OR n.notification_id IN (
        SELECT r.notification_id FROM routes r NOT INDEXED
        WHERE (r.address = :text_address OR r.address LIKE :text_prefix ESCAPE '\'
               OR r.last_error_message LIKE :text_within ESCAPE '\')))
    LIMIT :most
) AS counted;

-- name: counts
-- `held`: the claims under tickets whose leases have not run out.
SELECT lane, status, count(*) AS routes,
       count(*) FILTER (WHERE next_attempt_at <= :now AND NOT held) AS due,
       count(*) FILTER (WHERE held OR (next_attempt_at > :now AND claim_token IS NOT NULL)) AS leased,
       (:now - min(next_attempt_at) FILTER (WHERE next_attempt_at <= :now AND NOT held)) / 1000.0 AS oldest_due_seconds
FROM (
    SELECT lane, status, next_attempt_at, claim_token, coalesce(ticket IN (SELECT t.value FROM leases l, json_each(l.tickets) t WHERE l.expires_at > :now), 0) AS held FROM routes
)
GROUP BY lane, status;

-- name: dead_letters
-- All that match are counted, and only those of the page are read whole.
WITH matching AS MATERIALIZED (
    SELECT d.notification_id, d.route_id, d.created_at
    FROM dead_letters d
    WHERE (:channel IS NULL OR d.channel = :channel)
      AND (:classification IS NULL OR d.failure_classification = :classification)
      AND (:notification_id IS NULL OR d.notification_id = :notification_id)
      AND (:tenant_id IS NULL OR EXISTS (
          SELECT 1 FROM records n WHERE n.notification_id = d.notification_id AND coalesce(n.tenant_id, '') = :tenant_id))
      AND (:created_after_ms IS NULL OR d.created_at >= :created_after_ms)
), page AS (
    SELECT *, created_at * 1000 AS place FROM matching
    WHERE :before_us IS NULL
       OR (created_at, notification_id, route_id) < (:before_us / 1000, :before_id, :before_route)
    ORDER BY created_at DESC, notification_id DESC, route_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, shown.*
FROM (SELECT 1) AS always
LEFT JOIN (
    SELECT d.*, n.tenant_id, n.notification_type, n.producer, page.place
    FROM page
    JOIN dead_letters d ON d.notification_id = page.notification_id AND d.route_id = page.route_id
    JOIN records n ON n.notification_id = page.notification_id
) AS shown ON TRUE
ORDER BY shown.created_at DESC, shown.notification_id DESC, shown.route_id DESC;

-- name: rehome
-- Settings no longer name the provider or lane of these routes, so no worker would claim them.
UPDATE routes
SET provider = CASE WHEN provider IN (SELECT value FROM json_each(:providers)) THEN provider
                    ELSE json_extract(:providers, '$[0]') END,
    lane = CASE WHEN lane IN (SELECT value FROM json_each(:lanes)) THEN lane ELSE :otherwise END,
    updated_at = :now
WHERE channel = :channel AND next_attempt_at IS NOT NULL
  AND NOT (provider IN (SELECT value FROM json_each(:providers)) AND lane IN (SELECT value FROM json_each(:lanes)))
RETURNING route_id;

-- name: hasten
-- For tests and drills: time passes for what waits. What has a ticket is due or held.
--   goal                    the plan of a chain moves with it.
UPDATE routes SET next_attempt_at = next_attempt_at - CAST(round(:seconds * 1000) AS INTEGER),
    not_before = not_before - CAST(round(:seconds * 1000) AS INTEGER),
    budget_since = CASE WHEN goal IS NULL THEN budget_since ELSE budget_since - CAST(round(:seconds * 1000) AS INTEGER) END
WHERE next_attempt_at IS NOT NULL AND claim_token IS NULL AND ticket IS NULL
RETURNING route_id;

-- name: hasten_expiry
-- Runs in the transaction of `hasten`: what waits expires earlier too.
UPDATE records SET expires_at = expires_at - CAST(:seconds * 1000 AS INTEGER) WHERE expires_at IS NOT NULL;

-- name: keep_message
-- Race: a worker that was suspended completes an email whose route another worker holds by now.
--   claim_token, ticket     only the holder of the current one may change the message.
--   status                  a route that a late success has finished keeps what was sent.
UPDATE routes SET message_json = :message_json, updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id
  AND (claim_token = :token OR ticket = :token)
  AND status IN ('pending', 'failed')
RETURNING route_id;

-- name: prune_candidates
-- A notification with an unsent alert is kept, and an event of a digest that is not told yet.
SELECT n.notification_id FROM records n
WHERE n.accepted_at < :now - CAST(round(:older_than_seconds * 1000) AS INTEGER)
  AND NOT EXISTS (
      SELECT 1 FROM routes r WHERE r.notification_id = n.notification_id AND r.status IN ('pending', 'failed'))
  AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.notification_id = n.notification_id)
  -- if api
  AND NOT EXISTS (
      SELECT 1 FROM digest_members m JOIN digests d ON d.digest_id = m.digest_id
      WHERE m.notification_id = n.notification_id AND d.told_at IS NULL)
  -- else
  -- end
ORDER BY n.accepted_at
LIMIT :limit;

-- name: prune
-- Routes and dead letters go with their record.
DELETE FROM records WHERE notification_id IN (SELECT value FROM json_each(:notification_ids))
RETURNING notification_id;

-- name: prune_attempts
-- Runs in the transaction of `prune`.
DELETE FROM attempts WHERE notification_id IN (SELECT value FROM json_each(:notification_ids));

-- name: prune_stream_note
-- Runs in the transaction of `prune`, before `prune_stream`: a reader before the removed entries learns that
-- entries are missing.
UPDATE streams
SET pruned_seq = max(pruned_seq, gone.seq)
FROM (SELECT e.user_id, max(e.seq) AS seq FROM stream_entries e
      WHERE e.notification_id IN (SELECT value FROM json_each(:notification_ids)) GROUP BY e.user_id) AS gone
WHERE streams.user_id = gone.user_id;

-- name: prune_stream
-- Runs in the transaction of `prune`.
DELETE FROM stream_entries WHERE notification_id IN (SELECT value FROM json_each(:notification_ids));

-- name: prune_malformed
DELETE FROM malformed_intents WHERE stream_entry_id IN (
    SELECT stream_entry_id FROM malformed_intents WHERE recorded_at < :now - CAST(round(:older_than_seconds * 1000) AS
        INTEGER)
    ORDER BY recorded_at LIMIT :limit)
RETURNING 1 AS pruned;

-- name: prune_receipts
-- Waiting receipts are decided first.
DELETE FROM receipts WHERE receipt_key IN (
    SELECT receipt_key FROM receipts
    WHERE received_at < :now - CAST(round(:older_than_seconds * 1000) AS INTEGER) AND effect <> 'waiting'
    ORDER BY received_at LIMIT :limit)
RETURNING 1 AS pruned;

-- name: migrations_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    INTEGER PRIMARY KEY,
    applied_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER))
);

-- name: migrations_begun
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations');

-- name: migrations_applied
SELECT version FROM schema_migrations;

-- name: migrations_note
INSERT INTO schema_migrations (version) VALUES (?1);

-- name: parts_table
CREATE TABLE schema_parts (
    part    TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (part, version)
);

-- name: parts_begun
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_parts');

-- name: parts_applied
SELECT part, version FROM schema_parts;

-- name: parts_note
INSERT INTO schema_parts (part, version) VALUES (?1, ?2);

-- name: table_columns
-- What is in the file before a migration runs.
SELECT m.name AS table_name, c.name AS column_name, c.type AS data_type,
       c."notnull" = 1 AND c.dflt_value IS NULL AND c.pk = 0 AS must_be_given
FROM sqlite_master m JOIN pragma_table_info(m.name) c
WHERE m.type IN ('table', 'view')
ORDER BY m.name, c.cid;
