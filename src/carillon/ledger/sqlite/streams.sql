-- Statements of live streams: each person's log, its readers, and where they are.

-- name: in_turn
-- The claims of one person and lane that may be appended now, in the order of the log. One order for the claim, this check and
-- the numbers: `budget_since`, which is what the claim goes by, then the order of the rows, as the claim's index breaks ties: a
-- commit gives all its rows one time. A claim waits while an earlier notification is open and neither in the log nor in this batch.
--   latest                  what comes later than the whole batch, or is scheduled for later, is not looked up in the log.
--   INDEXED BY              without statistics the index of due routes looks better, and the whole lane would be read.
WITH own AS MATERIALIZED (
    SELECT r.notification_id, r.route_id, r.budget_since, r.rowid AS place
    FROM json_each(:claims) AS given
    JOIN routes r ON r.notification_id = given.value ->> 0 AND r.route_id = given.value ->> 1
), missing AS MATERIALIZED (
    SELECT r.budget_since, r.rowid AS place
    FROM routes r INDEXED BY routes_held_idx JOIN records n ON n.notification_id = r.notification_id
    WHERE r.recipient_ref = :recipient_ref AND r.provider = 'sse' AND r.next_attempt_at IS NOT NULL
      AND r.lane = :lane AND r.budget_since <= (SELECT max(budget_since) FROM own)
      AND n.tenant_id IS :tenant_id
      AND r.rowid NOT IN (SELECT place FROM own)
      AND NOT EXISTS (
          SELECT 1 FROM stream_entries e WHERE e.notification_id = r.notification_id AND e.route_id = r.route_id)
    ORDER BY r.budget_since, r.rowid
    LIMIT 1
)
SELECT own.notification_id, own.route_id, own.budget_since, own.place
FROM own LEFT JOIN missing ON TRUE
WHERE missing.place IS NULL OR (own.budget_since, own.place) < (missing.budget_since, missing.place);

-- name: append
-- Race: the earlier holder of a claim appends once more; `pushed` looks first, in the same transaction.
INSERT INTO stream_entries (user_id, seq, notification_id, route_id, pushed_at, pushed_by)
VALUES (:user_id, :seq, :notification_id, :route_id, :now, (
    SELECT lease_owner FROM routes WHERE notification_id = :notification_id AND route_id = :route_id));

-- name: append_number
-- only: PostgreSQL draws numbers in the same statement
INSERT INTO streams (user_id, last_seq) VALUES (:user_id, :drawn)
ON CONFLICT (user_id) DO UPDATE SET last_seq = last_seq + :drawn
RETURNING last_seq;

-- name: pushed
-- `seq` is NULL for what is not in the log yet.
SELECT e.seq, n.priority, coalesce(n.occurred_at, n.accepted_at) AS event_timestamp_ms,
       e.read_at IS NOT NULL AS read, e.delivered_at IS NOT NULL AS delivered
FROM records n LEFT JOIN stream_entries e ON e.notification_id = n.notification_id AND e.route_id = :route_id
WHERE n.notification_id = :notification_id;

-- name: read
SELECT e.user_id, e.seq, e.notification_id, n.notification_type, n.priority,
       coalesce(n.occurred_at, n.accepted_at) AS event_timestamp_ms,
       n.payload_json, e.read_at IS NOT NULL AS read, e.delivered_at IS NOT NULL AS delivered,
       e.archived_at IS NOT NULL AS archived, (
           SELECT r.message_json FROM routes r
           WHERE r.notification_id = e.notification_id AND r.route_id = e.route_id AND r.channel = 'inApp') AS message_json
FROM stream_entries e JOIN records n ON n.notification_id = e.notification_id
WHERE e.user_id = :user_id AND e.seq > :after
ORDER BY e.seq
LIMIT :limit;

-- name: newest_first
SELECT e.user_id, e.seq, e.notification_id, n.notification_type, n.priority,
       coalesce(n.occurred_at, n.accepted_at) AS event_timestamp_ms,
       n.payload_json, e.read_at IS NOT NULL AS read, e.delivered_at IS NOT NULL AS delivered,
       e.archived_at IS NOT NULL AS archived, (
           SELECT r.message_json FROM routes r
           WHERE r.notification_id = e.notification_id AND r.route_id = e.route_id AND r.channel = 'inApp') AS message_json
FROM stream_entries e JOIN records n ON n.notification_id = e.notification_id
WHERE e.user_id = :user_id AND (:before IS NULL OR e.seq < :before) AND (e.archived_at IS NOT NULL) = :archived
ORDER BY e.seq DESC
LIMIT :limit;

-- name: waiting
-- `after_id` is the last one of the page before.
SELECT :user_id AS user_id, 0 AS seq, n.notification_id, n.notification_type, n.priority,
       coalesce(n.occurred_at, n.accepted_at) AS event_timestamp_ms, n.payload_json, 0 AS read, 0 AS delivered,
       0 AS archived, NULL AS message_json
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.recipient_ref IN (SELECT value FROM json_each(:recipients)) AND r.provider = 'sse' AND
    r.last_error_classification = 'throttled'
  AND r.next_attempt_at IS NOT NULL AND n.tenant_id IS :tenant_id
  AND NOT EXISTS (
      SELECT 1 FROM stream_entries e WHERE e.notification_id = r.notification_id AND e.route_id = r.route_id)
  AND (:after_id IS NULL OR (n.accepted_at, n.notification_id)
       < (SELECT o.accepted_at, o.notification_id FROM records o WHERE o.notification_id = :after_id))
ORDER BY n.accepted_at DESC, n.notification_id DESC
LIMIT :limit;

-- name: bounds
-- One snapshot for all three, so that a reader never begins after an entry that is announced to it.
SELECT s.user_id, s.pruned_seq + 1 AS oldest, s.last_seq AS newest,
       coalesce((
           SELECT min(e.seq) FROM stream_entries e
           JOIN routes r ON r.notification_id = e.notification_id AND r.route_id = e.route_id
           WHERE e.user_id = s.user_id AND e.seq > s.last_seq - 1000 AND r.status IN ('pending', 'failed')
       ), 0) AS unsettled
FROM streams s
WHERE s.user_id IN (SELECT value FROM json_each(:user_ids));

-- name: inbox_counts
-- `waiting`: what waits for an absent person has no entry yet; nobody has read it. What is archived counts no more.
SELECT count(*) AS total, count(*) FILTER (WHERE read_at IS NULL) AS unread, (
    SELECT count(*) FROM routes r JOIN records n ON n.notification_id = r.notification_id
    WHERE r.recipient_ref IN (SELECT value FROM json_each(:recipients)) AND r.provider = 'sse'
      AND r.last_error_classification = 'throttled' AND r.next_attempt_at IS NOT NULL AND n.tenant_id IS :tenant_id
      AND NOT EXISTS (
          SELECT 1 FROM stream_entries e WHERE e.notification_id = r.notification_id AND e.route_id = r.route_id)
    ) AS waiting
FROM stream_entries WHERE user_id = :user_id AND archived_at IS NULL;

-- name: acknowledge
-- Races: the acknowledgement comes twice, or before the push is settled.
--   delivered_at            the first one's time stays.
UPDATE stream_entries SET delivered_at = coalesce(delivered_at, :now)
WHERE notification_id = :notification_id AND user_id = :user_id
RETURNING route_id;

-- name: acknowledge_route
-- only: PostgreSQL changes the route in the same statement
--   claim_token             stays: the worker that settles finds its lease as it was.
UPDATE routes SET delivered_at = :now, receipt = coalesce(receipt, 'delivered'), updated_at = :now
WHERE notification_id = :notification_id AND route_id = :route_id AND delivered_at IS NULL;

-- name: unread_of_chains
-- The unread entries of one person whose notification has other channels that wait for this one.
SELECT e.notification_id, e.route_id, r.provider FROM stream_entries e
JOIN routes r ON r.notification_id = e.notification_id AND r.route_id = e.route_id
WHERE e.user_id = :user_id AND e.read_at IS NULL AND r.goal IS NOT NULL
  AND (:notification_ids IS NULL OR e.notification_id IN (SELECT value FROM json_each(:notification_ids)))
ORDER BY e.seq LIMIT :limit;

-- name: mark_read
-- Race: a person marks in two windows.
--   read_at IS NULL         each entry is counted by one of them.
UPDATE stream_entries SET read_at = :now
WHERE user_id = :user_id AND read_at IS NULL
  AND (:notification_ids IS NULL OR notification_id IN (SELECT value FROM json_each(:notification_ids)))
RETURNING 1 AS changed;

-- name: mark_unread
-- Race: as for `mark_read`.
UPDATE stream_entries SET read_at = NULL
WHERE user_id = :user_id AND read_at IS NOT NULL
  AND (:notification_ids IS NULL OR notification_id IN (SELECT value FROM json_each(:notification_ids)))
RETURNING 1 AS changed;

-- name: archive
-- Without names every read entry goes to the archive: what came a moment ago is unread and stays.
-- Race: a person archives in two windows.
--   archived_at IS NULL     each entry is counted by one of them.
UPDATE stream_entries SET archived_at = :now
WHERE user_id = :user_id AND archived_at IS NULL
  AND CASE WHEN :notification_ids IS NULL THEN read_at IS NOT NULL
           ELSE notification_id IN (SELECT value FROM json_each(:notification_ids)) END
RETURNING 1 AS changed;

-- name: unarchive
-- Race: as for `archive`.
UPDATE stream_entries SET archived_at = NULL
WHERE user_id = :user_id AND archived_at IS NOT NULL
  AND (:notification_ids IS NULL OR notification_id IN (SELECT value FROM json_each(:notification_ids)))
RETURNING 1 AS changed;

-- name: wake
-- Races: a claim, or a settlement that defers, at the same moment; the caller wakes the person again a little later.
--   claim_token             a claimed route stays with its worker.
--   throttled               only routes that wait for the person, not scheduled ones.
--   budget_since            when it was due first: deferred routes are claimed in their order of acceptance, also those whose
--                           wait is over already.
UPDATE routes SET next_attempt_at = budget_since, updated_at = :now
WHERE recipient_ref = :recipient_ref AND provider = 'sse' AND last_error_classification = 'throttled'
  AND next_attempt_at IS NOT NULL AND next_attempt_at > budget_since AND claim_token IS NULL
  AND EXISTS (
      SELECT 1 FROM records n WHERE n.notification_id = routes.notification_id AND n.tenant_id IS :tenant_id)
RETURNING 1 AS changed;

-- name: arrive
INSERT INTO presence (user_id, replica) VALUES (:user_id, :replica) ON CONFLICT DO NOTHING;

-- name: leave
DELETE FROM presence WHERE replica = :replica AND user_id = :user_id;

-- name: renew
-- A forgotten replica finds no row, learns it and announces its people again.
UPDATE replicas SET alive_until = :now + CAST(round(:seconds * 1000) AS INTEGER) WHERE replica = :replica
RETURNING 1 AS known;

-- name: enter_replica
INSERT INTO replicas (replica, alive_until) VALUES (:replica, :now + CAST(round(:seconds * 1000) AS INTEGER))
ON CONFLICT (replica) DO UPDATE SET alive_until = excluded.alive_until;

-- name: forget_replicas
-- A replica may renew late; it is forgotten long after it stopped counting as alive.
DELETE FROM replicas WHERE alive_until < :now - CAST(round(:seconds * 1000) AS INTEGER)
RETURNING replica;

-- name: forget_presence
-- Runs in the transaction of `forget_replicas`.
DELETE FROM presence WHERE replica IN (SELECT value FROM json_each(:replicas));

-- name: where
SELECT p.user_id, p.replica
FROM presence p JOIN replicas r ON r.replica = p.replica
WHERE p.user_id IN (SELECT value FROM json_each(:user_ids)) AND r.alive_until > :now;

-- name: add_ticket
INSERT INTO stream_tickets (digest, user_id, tenant_id, token_until_ms, token_id, expires_at)
VALUES (:digest, :user_id, :tenant_id, :token_until_ms, :token_id, :now + CAST(:seconds * 1000 AS INTEGER));

-- name: forget_tickets
DELETE FROM stream_tickets WHERE digest IN (SELECT digest FROM stream_tickets WHERE expires_at < :now LIMIT 100);

-- name: open_ticket
-- Race: the same ticket is shown twice at the same moment.
--   NOT opened              writers follow one another, so the second finds it used.
UPDATE stream_tickets
SET opened = 1, expires_at = :now + CAST(:seconds * 1000 AS INTEGER)
WHERE digest = :digest AND NOT opened AND expires_at > :now
RETURNING user_id, tenant_id, token_until_ms, token_id;

-- name: ticket
SELECT user_id, tenant_id, token_until_ms, token_id FROM stream_tickets WHERE digest = :digest AND expires_at > :now;
