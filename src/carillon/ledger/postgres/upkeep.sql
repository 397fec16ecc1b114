-- Statements of operators and retention. Filters left out are NULL and match everything; the tenant '' is
-- the filter for rows without a tenant.

-- name: records
SELECT * FROM records
WHERE notification_id = ANY (:notification_ids::text[]) AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
ORDER BY accepted_at DESC, notification_id DESC;

-- name: routes
-- `held_by`, `held_since`, `held_until`: the lease of a claim under a ticket. `redriven_by`: the last redrive.
-- `group_calls`: how many claims hold a place of the group that a route in the turns waits for; for a claim of a group with a cap, how
-- many go before it. Who claims ahead calls in the order of claiming, and calls at least the first of its claims.
-- `in_quiet_hours`: it waits for their end, or expires before.
SELECT r.*, held.owner AS held_by, held.claimed_at AS held_since, held.expires_at AS held_until, r.ticket AS held_token,
       r.attempt_count + 1 AS held_attempt,
       r.status = 'pending' AND r.not_before > clock_timestamp() AND r.next_attempt_at <= r.not_before AS in_quiet_hours,
       CASE WHEN r.grp < 0 AND (r.turn IS NOT NULL OR (r.ticket IS NOT NULL AND held.owner IS NULL)) AND r.next_attempt_at IS NOT NULL
           THEN (SELECT coalesce(sum(cardinality(l.tickets)), 0) FROM leases l WHERE l.grp = r.grp)
                + (SELECT count(*) FROM routes g
                   WHERE g.grp = r.grp AND g.grp < 0 AND g.claim_token IS NOT NULL AND g.turn IS NULL)
           WHEN held.nth > 1 OR EXISTS (
               SELECT FROM leases l
               WHERE l.grp = held.grp AND l.owner = held.owner AND l.lease_id < held.lease_id AND cardinality(l.tickets) > 0)
           THEN held.nth - 1 + (
               SELECT coalesce(sum(cardinality(l.tickets)), 0) FROM leases l WHERE l.grp = held.grp AND l.lease_id < held.lease_id)
       END AS group_calls,
       -- if api
       (SELECT m.action_id FROM redriven_routes m WHERE m.notification_id = r.notification_id AND m.route_id = r.route_id)
           AS redriven_by
       -- else
       NULL AS redriven_by
       -- end
FROM routes r
LEFT JOIN LATERAL (
    SELECT l.lease_id, l.grp, l.owner, l.claimed_at, l.expires_at,
           CASE WHEN l.grp IS NOT NULL THEN array_position(l.tickets, r.ticket) END AS nth
    FROM leases l WHERE r.ticket = ANY (l.tickets) LIMIT 1
) AS held ON TRUE
WHERE r.notification_id = ANY (:notification_ids::text[]) ORDER BY r.notification_id, r.route_id;

-- name: attempts
SELECT * FROM attempts_told WHERE notification_id = ANY (:notification_ids::text[]) ORDER BY notification_id, attempt_id;

-- name: search
-- The newest first; the index of the times ends the search as soon as the page is full.
-- A published route is `vendor_queued`, `vendor_sent`, `received` or `opened` once its vendor said so.
SELECT n.notification_id, (extract(epoch FROM n.accepted_at) * 1000000)::bigint AS place
FROM records n
WHERE (:user_id::text IS NULL OR n.user_id = :user_id)
  AND (:sent_by::text IS NULL OR n.sent_by = :sent_by)
  AND (:notification_type::text IS NULL OR n.notification_type = :notification_type)
  AND (:tenant_id::text IS NULL OR coalesce(n.tenant_id, '') = :tenant_id)
  AND (:trace_id::text IS NULL OR n.trace_id = :trace_id)
  AND (:origin::text IS NULL OR n.origin = :origin)
  AND (:accepted_after_ms::float8 IS NULL OR n.accepted_at >= to_timestamp(:accepted_after_ms / 1000.0))
  AND (:accepted_before_ms::float8 IS NULL OR n.accepted_at < to_timestamp(:accepted_before_ms / 1000.0))
  AND ((:statuses::text[] IS NULL AND :channel::text IS NULL AND :address::text IS NULL) OR EXISTS (
          SELECT FROM routes r
          WHERE r.notification_id = n.notification_id
            AND (:statuses::text[] IS NULL OR (CASE
                     WHEN r.status <> 'published' THEN r.status WHEN r.opened_at IS NOT NULL THEN 'opened'
                     WHEN r.delivered_at IS NOT NULL THEN 'received'
                     WHEN r.receipt IN ('queued', 'sent') THEN 'vendor_' || r.receipt
                     ELSE 'published' END) = ANY (:statuses))
            AND (:channel::text IS NULL OR r.channel = :channel)
            AND (:address::text IS NULL OR r.address = :address)))
  AND (:text::text IS NULL OR n.notification_id = :text OR n.user_id = :text OR n.trace_id = :text
       OR n.notification_type LIKE :text_prefix OR EXISTS (
          SELECT FROM routes r
          WHERE r.notification_id = n.notification_id
            AND (r.address = :text_address OR r.address LIKE :text_prefix OR r.last_error_message ILIKE :text_within)))
  AND (:before_us::bigint IS NULL OR (n.accepted_at, n.notification_id)
      < (timestamptz 'epoch' + :before_us::float8 * interval '1 microsecond', :before_id::text))
ORDER BY n.accepted_at DESC, n.notification_id DESC
LIMIT :limit OFFSET :offset;

-- name: search_count
-- Runs in the snapshot of `search`, so that they agree, and counts no further than `most`.
SELECT count(*) AS total FROM (
    SELECT FROM records n
    WHERE (:user_id::text IS NULL OR n.user_id = :user_id)
      AND (:sent_by::text IS NULL OR n.sent_by = :sent_by)
      AND (:notification_type::text IS NULL OR n.notification_type = :notification_type)
      AND (:tenant_id::text IS NULL OR coalesce(n.tenant_id, '') = :tenant_id)
      AND (:trace_id::text IS NULL OR n.trace_id = :trace_id)
      AND (:origin::text IS NULL OR n.origin = :origin)
      AND (:accepted_after_ms::float8 IS NULL OR n.accepted_at >= to_timestamp(:accepted_after_ms / 1000.0))
      AND (:accepted_before_ms::float8 IS NULL OR n.accepted_at < to_timestamp(:accepted_before_ms / 1000.0))
      AND ((:statuses::text[] IS NULL AND :channel::text IS NULL AND :address::text IS NULL) OR EXISTS (
              SELECT FROM routes r
              WHERE r.notification_id = n.notification_id
                AND (:statuses::text[] IS NULL OR (CASE
                         WHEN r.status <> 'published' THEN r.status WHEN r.opened_at IS NOT NULL THEN 'opened'
                         WHEN r.delivered_at IS NOT NULL THEN 'received'
                         WHEN r.receipt IN ('queued', 'sent') THEN 'vendor_' || r.receipt
                         ELSE 'published' END) = ANY (:statuses))
                AND (:channel::text IS NULL OR r.channel = :channel)
                AND (:address::text IS NULL OR r.address = :address)))
      AND (:text::text IS NULL OR n.notification_id = :text OR n.user_id = :text OR n.trace_id = :text
           OR n.notification_type LIKE :text_prefix OR EXISTS (
              SELECT FROM routes r
              WHERE r.notification_id = n.notification_id
                AND (r.address = :text_address OR r.address LIKE :text_prefix OR r.last_error_message ILIKE :text_within)))
    LIMIT :most
) AS counted;

-- name: counts
-- `held`: the claims under tickets whose leases have not run out. A hash table, so that each route is looked up once.
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now)
SELECT r.lane, r.status, count(*) AS routes,
       count(*) FILTER (WHERE r.next_attempt_at <= clock.now AND NOT r.held) AS due,
       count(*) FILTER (WHERE r.held OR (r.next_attempt_at > clock.now AND r.claim_token IS NOT NULL)) AS leased,
       date_part('epoch', clock.now - min(r.next_attempt_at) FILTER (WHERE r.next_attempt_at <= clock.now AND NOT r.held))
           AS oldest_due_seconds
FROM clock CROSS JOIN (
    SELECT lane, status, next_attempt_at, claim_token,
           (ticket IN (SELECT unnest(l.tickets) FROM leases l WHERE l.expires_at > clock_timestamp())) IS TRUE AS held
    FROM routes
) AS r
GROUP BY r.lane, r.status, clock.now;

-- name: dead_letters
-- All that match are counted, and only those of the page are read whole.
WITH matching AS MATERIALIZED (
    SELECT d.notification_id, d.route_id, d.created_at
    FROM dead_letters d
    WHERE (:channel::text IS NULL OR d.channel = :channel)
      AND (:classification::text IS NULL OR d.failure_classification = :classification)
      AND (:notification_id::text IS NULL OR d.notification_id = :notification_id)
      AND (:tenant_id::text IS NULL OR EXISTS (
          SELECT 1 FROM records n WHERE n.notification_id = d.notification_id AND coalesce(n.tenant_id, '') = :tenant_id))
      AND (:created_after_ms::float8 IS NULL OR d.created_at >= to_timestamp(:created_after_ms / 1000.0))
), page AS (
    SELECT *, (extract(epoch FROM created_at) * 1000000)::bigint AS place FROM matching
    WHERE :before_us::bigint IS NULL OR (created_at, notification_id, route_id)
        < (timestamptz 'epoch' + :before_us::float8 * interval '1 microsecond', :before_id::text, :before_route::text)
    ORDER BY created_at DESC, notification_id DESC, route_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, shown.*
FROM (VALUES (1)) AS always (row)
LEFT JOIN (
    SELECT d.*, n.tenant_id, n.notification_type, n.producer, page.place
    FROM page
    JOIN dead_letters d ON d.notification_id = page.notification_id AND d.route_id = page.route_id
    JOIN records n ON n.notification_id = page.notification_id
) AS shown ON TRUE
ORDER BY shown.created_at DESC, shown.notification_id DESC, shown.route_id DESC;

-- name: rehome
-- Settings no longer name the provider or lane of these routes, so no worker would claim them.
-- Race: a worker with the old settings holds the route; its settlement needs only the token, which stays.
UPDATE routes
SET provider = CASE WHEN provider = ANY (:providers::text[]) THEN provider ELSE (:providers::text[])[1] END,
    lane = CASE WHEN lane = ANY (:lanes::smallint[]) THEN lane ELSE :otherwise::smallint END,
    updated_at = clock_timestamp()
WHERE channel = :channel AND next_attempt_at IS NOT NULL
  AND NOT (provider = ANY (:providers::text[]) AND lane = ANY (:lanes::smallint[]))
RETURNING route_id;

-- name: hasten
-- For tests and drills: time passes for what waits. A claimed route keeps its lease, and what has a ticket is due or held.
--   goal                    the plan of a chain moves with it.
UPDATE routes SET next_attempt_at = next_attempt_at - make_interval(secs => :seconds),
    not_before = not_before - make_interval(secs => :seconds),
    budget_since = CASE WHEN goal IS NULL THEN budget_since ELSE budget_since - make_interval(secs => :seconds) END
WHERE next_attempt_at IS NOT NULL AND claim_token IS NULL AND ticket IS NULL
RETURNING route_id;

-- name: hasten_expiry
-- Runs in the transaction of `hasten`: what waits expires earlier too.
UPDATE records SET expires_at = expires_at - make_interval(secs => :seconds) WHERE expires_at IS NOT NULL;

-- name: keep_message
-- Race: a worker that was suspended completes an email whose route another worker holds by now.
--   claim_token, ticket     only the holder of the current one may change the message.
--   status                  a route that a late success has finished keeps what was sent.
UPDATE routes SET message_json = :message_json, updated_at = clock_timestamp()
WHERE notification_id = :notification_id AND route_id = :route_id
  AND (claim_token = :token OR ticket = :token)
  AND status IN ('pending', 'failed')
RETURNING route_id;

-- name: prune_candidates
-- A notification with an unsent alert is kept, and an event of a digest that is not told yet.
-- Locks the candidates; a record under redrive is skipped, and `prune` sees one that was redriven.
SELECT n.notification_id FROM records n
WHERE n.accepted_at < clock_timestamp() - :older_than_seconds::float8 * interval '1 second'
  AND NOT EXISTS (
      SELECT FROM routes r WHERE r.notification_id = n.notification_id AND r.status IN ('pending', 'failed'))
  AND NOT EXISTS (SELECT FROM outbox o WHERE o.notification_id = n.notification_id)
  -- if api
  AND NOT EXISTS (
      SELECT FROM digest_members m JOIN digests d ON d.digest_id = m.digest_id
      WHERE m.notification_id = n.notification_id AND d.told_at IS NULL)
  -- else
  -- end
ORDER BY n.accepted_at
LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: prune
-- Race: a dead letter was redriven after the candidates had been looked up and before they were locked.
--   NOT EXISTS              a statement of its own looks again, under the locks, with a fresh snapshot.
-- Routes and dead letters go with their record.
DELETE FROM records n
WHERE n.notification_id = ANY (:notification_ids::text[])
  AND NOT EXISTS (
      SELECT FROM routes r WHERE r.notification_id = n.notification_id AND r.status IN ('pending', 'failed'))
RETURNING n.notification_id;

-- name: prune_attempts
-- Runs in the transaction of `prune`.
DELETE FROM attempts WHERE notification_id = ANY (:notification_ids::text[]);

-- name: prune_stream_note
-- Runs in the transaction of `prune`, before `prune_stream`: a reader before the removed entries learns that
-- entries are missing.
UPDATE streams s SET pruned_seq = greatest(s.pruned_seq, gone.seq)
FROM (SELECT user_id, max(seq) AS seq FROM stream_entries WHERE notification_id = ANY (:notification_ids::text[])
      GROUP BY user_id) AS gone
WHERE s.user_id = gone.user_id;

-- name: prune_stream
-- Runs in the transaction of `prune`.
DELETE FROM stream_entries WHERE notification_id = ANY (:notification_ids::text[]);

-- name: prune_malformed
--   = ANY (ARRAY(...))      the look is made once. `IN` may look again for every row, past the ones it has locked: more go than :limit.
DELETE FROM malformed_intents WHERE stream_entry_id = ANY (ARRAY(
    SELECT stream_entry_id FROM malformed_intents
    WHERE recorded_at < clock_timestamp() - :older_than_seconds::float8 * interval '1 second'
    ORDER BY recorded_at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1 AS pruned;

-- name: prune_slots
-- only: SQLite has one writer, so its claims need no fences
-- Race: a claim has seen the fence of a group and takes places of the group now.
--   interval                no claim takes so long. One that did would write the row anew; a second claim that has seen the
--                           same fence, or none, then finds another one and takes nothing.
--   NOT EXISTS              a group with calls is used.
--   FOR UPDATE SKIP LOCKED  two processes prune; each deletes rows that the other has not locked.
--   = ANY (ARRAY(...))      as in `prune_malformed`.
DELETE FROM slots WHERE grp = ANY (ARRAY(
    SELECT s.grp FROM slots s
    WHERE s.taken_at < clock_timestamp() - interval '1 hour'
      AND NOT EXISTS (SELECT FROM leases l WHERE l.grp = s.grp)
      AND NOT EXISTS (
          SELECT FROM routes r WHERE r.grp = s.grp AND r.grp < 0 AND r.claim_token IS NOT NULL AND r.turn IS NULL)
    LIMIT :limit FOR UPDATE SKIP LOCKED));

-- name: prune_receipts
-- Race: two processes prune; each deletes rows that the other has not locked. Waiting receipts are decided first.
--   = ANY (ARRAY(...))      as in `prune_malformed`.
DELETE FROM receipts WHERE receipt_key = ANY (ARRAY(
    SELECT receipt_key FROM receipts
    WHERE received_at < clock_timestamp() - :older_than_seconds::float8 * interval '1 second' AND effect <> 'waiting'
    ORDER BY received_at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING 1 AS pruned;

-- name: check
-- only: SQLite is asked by pragmas
SELECT current_setting('server_version') AS version, date_part('epoch', clock_timestamp()) AS clock,
       current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS synchronous_standby_names,
       current_setting('transaction_read_only') AS transaction_read_only,
       coalesce((SELECT max(date_part('epoch', clock_timestamp() - xact_start)) FROM pg_stat_activity
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()), 0) AS oldest_transaction_seconds;

-- name: notify
-- only: SQLite has no wake-ups between processes
SELECT pg_notify($1, $2);

-- name: vacuum
-- only: SQLite reuses freed pages at once
-- SKIP_LOCKED: another process is at it already. TRUNCATE needs a lock that would stop the queue.
VACUUM (SKIP_LOCKED, TRUNCATE FALSE) due, leases, routes;

-- name: schema_exists
-- only: SQLite has no schemas
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1);

-- name: schema_creation
-- only: SQLite has no schemas
-- A name cannot be a bound parameter of CREATE; the server itself quotes it here.
SELECT format('CREATE SCHEMA %I', $1::text);

-- name: migrate_lock
-- only: SQLite locks its file
-- Race: replicas that start together on an empty database; one applies, the others ask again and find it done.
SELECT pg_try_advisory_lock(7236837216);

-- name: migrate_unlock
-- only: SQLite locks its file
SELECT pg_advisory_unlock(7236837216);

-- name: migrate_patience
-- only: SQLite locks its file
-- Runs in the transaction of a migration, for steps that change tables in use. A step that waits for a table (for a long transaction, or for
-- an autovacuum, which gives way after a second only) makes everybody wait behind it: it gives up soon, and tries again.
SET LOCAL lock_timeout = '200ms';

-- name: migrations_table
CREATE TABLE IF NOT EXISTS schema_migrations (
    version    integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- name: migrations_begun
SELECT to_regclass('schema_migrations') IS NOT NULL;

-- name: migrations_applied
SELECT version FROM schema_migrations;

-- name: migrations_note
INSERT INTO schema_migrations (version) VALUES ($1);

-- name: parts_table
CREATE TABLE schema_parts (
    part    text NOT NULL,
    version integer NOT NULL,
    PRIMARY KEY (part, version)
);

-- name: parts_begun
SELECT to_regclass('schema_parts') IS NOT NULL;

-- name: parts_applied
SELECT part, version FROM schema_parts;

-- name: parts_note
INSERT INTO schema_parts (part, version) VALUES ($1, $2);

-- name: parts_forget
-- only: SQLite's file is not tidied
DELETE FROM schema_parts WHERE part = $1;

-- name: tidy_lock
-- only: SQLite's file is not tidied
-- Names cannot be bound parameters of LOCK; the server itself quotes them here.
SELECT 'LOCK TABLE ' || string_agg(quote_ident(name), ', ') || ' IN ACCESS EXCLUSIVE MODE' FROM unnest($1::text[]) AS name;

-- name: table_columns
-- What is in the schema before a migration runs; a view or a type has no columns that could be adopted.
-- Beside the schema public the table of notifications has a schema of its own; a view of that name is another ledger's, and stays.
SELECT c.relname::text AS table_name, a.attname::text AS column_name, format_type(a.atttypid, NULL) AS data_type,
       a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = '' AS must_be_given
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (c.relkind IN ('r', 'p') OR c.relname <> 'notifications')
  AND c.relnamespace = CASE WHEN c.relname = 'notifications' AND current_schema() = 'public'
                            THEN to_regnamespace('notifications')
                            ELSE to_regnamespace(quote_ident(current_schema())) END
ORDER BY c.relname, a.attnum;
