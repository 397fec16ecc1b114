-- Statements of live streams: each person's log, its readers, and where they are.

-- name: in_turn
-- The claims that may be appended now, in the order of the log. One order for the claim, this check and the numbers: lane, then
-- `budget_since`, which is what the claim goes by, then the id. A claim waits while an earlier notification of its person and lane
-- is open and neither in the log nor in this batch.
-- Race: it runs before `append`, in a statement of its own; entries stay in a log, so the answer can only be too cautious.
--   person                  one look-up for each person, not for each claim: a thousand waiting would be read a thousand times.
--   latest                  what comes later than the whole batch, or is scheduled for later, is not looked up in the log.
--   lane + 0                keeps the planner away from the index of due routes: with statistics of an empty table it would
--                           read the whole lane for each person.
WITH given AS MATERIALIZED (
    SELECT r.notification_id, r.route_id, given.recipient_ref, given.lane, given.tenant_id, r.budget_since
    FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[])
        AS given (notification_id, route_id, recipient_ref, lane, tenant_id)
    JOIN routes r ON r.notification_id = given.notification_id AND r.route_id = given.route_id
), person AS MATERIALIZED (
    SELECT recipient_ref, lane, tenant_id, max(budget_since) AS latest, array_agg(notification_id) AS notification_ids,
           array_agg(route_id) AS route_ids, array_agg(budget_since) AS since
    FROM given
    GROUP BY recipient_ref, lane, tenant_id
)
SELECT own.notification_id, own.route_id
FROM person
LEFT JOIN LATERAL (
    SELECT r.budget_since, r.notification_id
    FROM routes r JOIN records n ON n.notification_id = r.notification_id
    WHERE r.recipient_ref = person.recipient_ref AND r.provider = 'sse' AND r.next_attempt_at IS NOT NULL
      AND r.lane + 0 = person.lane AND r.budget_since <= person.latest
      AND n.tenant_id IS NOT DISTINCT FROM person.tenant_id
      AND ((r.notification_id, r.route_id) IN (SELECT notification_id, route_id FROM given)) IS NOT TRUE
      AND NOT EXISTS (
          SELECT FROM stream_entries e WHERE e.notification_id = r.notification_id AND e.route_id = r.route_id)
    ORDER BY r.budget_since, r.notification_id
    LIMIT 1
) AS missing ON TRUE
CROSS JOIN LATERAL unnest(person.notification_ids, person.route_ids, person.since)
    AS own (notification_id, route_id, budget_since)
WHERE missing.notification_id IS NULL
   OR (own.budget_since, own.notification_id) < (missing.budget_since, missing.notification_id)
ORDER BY person.lane, own.budget_since, own.notification_id;

-- name: append
-- Races: two replicas append for one person; the earlier holder of a claim appends once more.
--   bumped                  the lock on the person's counter is held until the commit, so numbers become visible in
--                           their order; persons are locked in one order, so two batches never wait in a circle.
--   known                   a repeat keeps its number.
--   ON CONFLICT DO NOTHING  the same push, committed since this statement looked: `pushed` reads its number afterwards,
--                           and the number drawn for it here stays empty.
--   of_person               one look-up a line; as a join, a plan made for ten rows would compare all with all.
WITH given AS MATERIALIZED (
    SELECT given.*, e.seq AS known, e.read_at IS NOT NULL AS read, e.delivered_at IS NOT NULL AS delivered
    FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS given (user_id, notification_id, route_id, place)
    LEFT JOIN stream_entries e ON e.notification_id = given.notification_id AND e.route_id = given.route_id
), bumped AS (
    INSERT INTO streams AS s (user_id, last_seq)
    SELECT user_id, count(*) FROM given WHERE known IS NULL GROUP BY user_id ORDER BY user_id COLLATE "C"
    ON CONFLICT (user_id) DO UPDATE SET last_seq = s.last_seq + excluded.last_seq
    RETURNING user_id, last_seq
), numbers AS MATERIALIZED (
    SELECT jsonb_object_agg(user_id, last_seq) AS of_person FROM bumped
), placed AS (
    INSERT INTO stream_entries (user_id, seq, notification_id, route_id, pushed_at, pushed_by)
    SELECT user_id,
           (of_person ->> user_id)::bigint - count(*) OVER (PARTITION BY user_id)
               + row_number() OVER (PARTITION BY user_id ORDER BY place),
           notification_id, route_id, clock_timestamp(), (
               SELECT r.lease_owner FROM routes r
               WHERE r.notification_id = given.notification_id AND r.route_id = given.route_id)
    FROM numbers CROSS JOIN given
    WHERE known IS NULL
    ON CONFLICT (notification_id, route_id) DO NOTHING
    RETURNING notification_id, route_id, seq
)
SELECT line.notification_id, line.route_id, line.seq, n.priority,
       (date_part('epoch', date_trunc('milliseconds', coalesce(n.occurred_at, n.accepted_at))) * 1000)::bigint
           AS event_timestamp_ms,
       line.read, line.delivered
FROM (
    SELECT notification_id, route_id, seq, FALSE AS read, FALSE AS delivered FROM placed
    UNION ALL
    SELECT notification_id, route_id, known, read, delivered FROM given WHERE known IS NOT NULL
) AS line
JOIN records n ON n.notification_id = line.notification_id;

-- name: pushed
-- Runs after `append` committed: a replica that appended the same has committed too, so a fresh snapshot sees it.
SELECT e.notification_id, e.route_id, e.seq, n.priority,
       (date_part('epoch', date_trunc('milliseconds', coalesce(n.occurred_at, n.accepted_at))) * 1000)::bigint
           AS event_timestamp_ms,
       e.read_at IS NOT NULL AS read, e.delivered_at IS NOT NULL AS delivered
FROM unnest($1::text[], $2::text[]) AS given (notification_id, route_id)
JOIN stream_entries e ON e.notification_id = given.notification_id AND e.route_id = given.route_id
JOIN records n ON n.notification_id = e.notification_id;

-- name: read
SELECT e.user_id, e.seq, e.notification_id, n.notification_type, n.priority,
       (date_part('epoch', date_trunc('milliseconds', coalesce(n.occurred_at, n.accepted_at))) * 1000)::bigint
           AS event_timestamp_ms,
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
       (date_part('epoch', date_trunc('milliseconds', coalesce(n.occurred_at, n.accepted_at))) * 1000)::bigint
           AS event_timestamp_ms,
       n.payload_json, e.read_at IS NOT NULL AS read, e.delivered_at IS NOT NULL AS delivered,
       e.archived_at IS NOT NULL AS archived, (
           SELECT r.message_json FROM routes r
           WHERE r.notification_id = e.notification_id AND r.route_id = e.route_id AND r.channel = 'inApp') AS message_json
FROM stream_entries e JOIN records n ON n.notification_id = e.notification_id
WHERE e.user_id = :user_id AND (:before::bigint IS NULL OR e.seq < :before) AND (e.archived_at IS NOT NULL) = :archived::boolean
ORDER BY e.seq DESC
LIMIT :limit;

-- name: waiting
-- `after_id` is the last one of the page before.
SELECT :user_id::text AS user_id, 0 AS seq, n.notification_id, n.notification_type, n.priority,
       (date_part('epoch', date_trunc('milliseconds', coalesce(n.occurred_at, n.accepted_at))) * 1000)::bigint
           AS event_timestamp_ms,
       n.payload_json, FALSE AS read, FALSE AS delivered, FALSE AS archived, NULL::text AS message_json
FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.recipient_ref = ANY (:recipients::text[]) AND r.provider = 'sse' AND r.last_error_classification = 'throttled'
  AND r.next_attempt_at IS NOT NULL AND n.tenant_id IS NOT DISTINCT FROM :tenant_id
  AND NOT EXISTS (
      SELECT FROM stream_entries e WHERE e.notification_id = r.notification_id AND e.route_id = r.route_id)
  AND (:after_id::text IS NULL OR (n.accepted_at, n.notification_id)
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
WHERE s.user_id = ANY (:user_ids::text[]);

-- name: inbox_counts
-- `waiting`: what waits for an absent person has no entry yet; nobody has read it. What is archived counts no more.
SELECT count(*) AS total, count(*) FILTER (WHERE read_at IS NULL) AS unread, (
    SELECT count(*) FROM routes r JOIN records n ON n.notification_id = r.notification_id
    WHERE r.recipient_ref = ANY (:recipients::text[]) AND r.provider = 'sse' AND r.last_error_classification = 'throttled'
      AND r.next_attempt_at IS NOT NULL AND n.tenant_id IS NOT DISTINCT FROM :tenant_id
      AND NOT EXISTS (
          SELECT FROM stream_entries e WHERE e.notification_id = r.notification_id AND e.route_id = r.route_id)
    ) AS waiting
FROM stream_entries WHERE user_id = :user_id AND archived_at IS NULL;

-- name: acknowledge
-- Races: the acknowledgement comes twice, or before the push is settled.
--   delivered_at IS NULL    the first one's time stays.
--   claim_token             stays: the worker that settles finds its lease as it was.
WITH found AS MATERIALIZED (
    SELECT e.notification_id, e.route_id FROM stream_entries e WHERE e.notification_id = $2 AND e.user_id = $1
), marked AS (
    UPDATE stream_entries e SET delivered_at = clock_timestamp()
    FROM found
    WHERE e.notification_id = found.notification_id AND e.route_id = found.route_id AND e.delivered_at IS NULL
), told AS (
    UPDATE routes r
    SET delivered_at = clock_timestamp(), receipt = coalesce(r.receipt, 'delivered'), updated_at = clock_timestamp()
    FROM found
    WHERE r.notification_id = found.notification_id AND r.route_id = found.route_id AND r.delivered_at IS NULL
)
SELECT EXISTS (SELECT FROM found);

-- name: unread_of_chains
-- The unread entries of one person whose notification has other channels that wait for this one.
SELECT e.notification_id, e.route_id, r.provider FROM stream_entries e
JOIN routes r ON r.notification_id = e.notification_id AND r.route_id = e.route_id
WHERE e.user_id = :user_id AND e.read_at IS NULL AND r.goal IS NOT NULL
  AND (:notification_ids::text[] IS NULL OR e.notification_id = ANY (:notification_ids))
ORDER BY e.seq LIMIT :limit;

-- name: mark_read
-- Race: a person marks in two windows.
--   read_at IS NULL         each entry is counted by one of them.
UPDATE stream_entries SET read_at = clock_timestamp()
WHERE user_id = :user_id AND read_at IS NULL AND (:notification_ids::text[] IS NULL OR notification_id = ANY
    (:notification_ids))
RETURNING 1 AS changed;

-- name: mark_unread
-- Race: as for `mark_read`.
UPDATE stream_entries SET read_at = NULL
WHERE user_id = :user_id AND read_at IS NOT NULL
  AND (:notification_ids::text[] IS NULL OR notification_id = ANY (:notification_ids))
RETURNING 1 AS changed;

-- name: archive
-- Without names every read entry goes to the archive: what came a moment ago is unread and stays.
-- Race: a person archives in two windows.
--   archived_at IS NULL     each entry is counted by one of them.
UPDATE stream_entries SET archived_at = clock_timestamp()
WHERE user_id = :user_id AND archived_at IS NULL
  AND CASE WHEN :notification_ids::text[] IS NULL THEN read_at IS NOT NULL ELSE notification_id = ANY (:notification_ids) END
RETURNING 1 AS changed;

-- name: unarchive
-- Race: as for `archive`.
UPDATE stream_entries SET archived_at = NULL
WHERE user_id = :user_id AND archived_at IS NOT NULL
  AND (:notification_ids::text[] IS NULL OR notification_id = ANY (:notification_ids))
RETURNING 1 AS changed;

-- name: wake
-- Races: a claim, or a settlement that defers, at the same moment; the caller wakes the person again a little later.
--   claim_token             a claimed route stays with its worker.
--   throttled               only routes that wait for the person, not scheduled ones.
--   budget_since            when it was due first: deferred routes are claimed in their order of acceptance, also those whose
--                           wait is over already.
UPDATE routes r SET next_attempt_at = r.budget_since, updated_at = clock_timestamp()
FROM unnest(:recipient_ref::text[], :tenant_id::text[]) AS person (recipient_ref, tenant_id), records n
WHERE r.recipient_ref = person.recipient_ref AND r.provider = 'sse' AND r.last_error_classification = 'throttled'
  AND r.next_attempt_at IS NOT NULL AND r.next_attempt_at > r.budget_since AND r.claim_token IS NULL
  AND n.notification_id = r.notification_id AND n.tenant_id IS NOT DISTINCT FROM person.tenant_id
RETURNING 1 AS changed;

-- name: arrive
INSERT INTO presence (user_id, replica) SELECT user_id, :replica FROM unnest(:user_id::text[]) AS given (user_id)
ON CONFLICT DO NOTHING;

-- name: leave
DELETE FROM presence WHERE replica = :replica AND user_id = ANY (:user_id::text[]);

-- name: renew
-- Race: another replica forgets this one, which did not renew in time.
--   no row                  a forgotten replica learns it and announces its people again.
UPDATE replicas SET alive_until = clock_timestamp() + :seconds::float8 * interval '1 second'
WHERE replica = :replica
RETURNING 1 AS known;

-- name: enter_replica
INSERT INTO replicas (replica, alive_until) VALUES (:replica,
    clock_timestamp() + :seconds::float8 * interval '1 second')
ON CONFLICT (replica) DO UPDATE SET alive_until = excluded.alive_until;

-- name: forget_replicas
-- A replica may renew late; it is forgotten long after it stopped counting as alive.
--   SKIP LOCKED             a replica that renews at this moment stays, and nobody waits.
DELETE FROM replicas WHERE replica = ANY (ARRAY(
    SELECT replica FROM replicas WHERE alive_until < clock_timestamp() - :seconds::float8 * interval '1 second'
    FOR UPDATE SKIP LOCKED))
RETURNING replica;

-- name: forget_presence
-- Runs in the transaction of `forget_replicas`.
DELETE FROM presence WHERE replica = ANY (:replicas::text[]);

-- name: where
-- One look-up a person; a list, planned for few people, would read everybody.
SELECT p.user_id, p.replica
FROM unnest(:user_ids::text[]) AS given (user_id)
JOIN presence p ON p.user_id = given.user_id
JOIN replicas r ON r.replica = p.replica AND r.alive_until > clock_timestamp();

-- name: add_ticket
INSERT INTO stream_tickets (digest, user_id, tenant_id, token_until_ms, token_id, expires_at)
VALUES (:digest, :user_id, :tenant_id, :token_until_ms, :token_id,
    clock_timestamp() + :seconds::double precision * interval '1 second');

-- name: forget_tickets
-- Race: every process of a fleet removes expired tickets.
--   SKIP LOCKED             processes do not wait for each other, and a small batch delays nobody.
DELETE FROM stream_tickets WHERE digest = ANY (ARRAY(
    SELECT digest FROM stream_tickets WHERE expires_at < clock_timestamp() LIMIT 100 FOR UPDATE SKIP LOCKED
));

-- name: open_ticket
-- Race: the same ticket is shown twice at the same moment, perhaps to two replicas.
--   NOT opened              the second waits for the first one's row and finds it used.
UPDATE stream_tickets
SET opened = TRUE, expires_at = clock_timestamp() + :seconds::double precision * interval '1 second'
WHERE digest = :digest AND NOT opened AND expires_at > clock_timestamp()
RETURNING user_id, tenant_id, token_until_ms, token_id;

-- name: ticket
SELECT user_id, tenant_id, token_until_ms, token_id FROM stream_tickets
WHERE digest = :digest AND expires_at > clock_timestamp();
