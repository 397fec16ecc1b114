-- Statements of a person's rights. An erasure may be repeated: each of them removes what is still there.

-- name: overwrite_deleted
-- Nothing to do: vacuum removes deleted rows here.
SELECT 1 AS nothing;

-- name: person_addresses
SELECT DISTINCT r.address FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.recipient_ref = :recipient_ref AND coalesce(n.tenant_id, '') = :tenant_id AND r.address IS NOT NULL;

-- name: person_window
-- The last of the next ids: a step looks through so many notifications, however few of them are the person's.
SELECT max(notification_id) AS until FROM (
    SELECT notification_id FROM records WHERE notification_id > :after ORDER BY notification_id LIMIT :window) AS next;

-- name: person_notifications
-- Race: a notification is accepted meanwhile. The erasure looks again until a whole look finds nothing.
--   user:                   a route to another user with the same address is that user's.
--   whole                   nobody else gets it: the record goes with everything of it.
--   LATERAL                 the routes of each record by their key: an EXISTS beside the ORs reads the whole table each time.
SELECT n.notification_id,
       coalesce(NOT sent.others, TRUE) AND coalesce(n.recipient_user_ids - :user_id::text, '[]') = '[]' AS whole
FROM records n
CROSS JOIN LATERAL (
    SELECT bool_or(own) AS own, bool_or(NOT own) AS others
    FROM (SELECT (r.recipient_ref = ANY (:refs::text[])
                  OR (r.address = ANY (:addresses::text[]) AND r.recipient_ref NOT LIKE 'user:%')) IS TRUE AS own
          FROM routes r WHERE r.notification_id = n.notification_id) AS each) AS sent
WHERE coalesce(n.tenant_id, '') = :tenant_id AND n.notification_id > :after AND n.notification_id <= :until
  AND (n.user_id = :user_id OR n.recipient_user_ids ? :user_id OR sent.own)
ORDER BY n.notification_id;

-- name: erase_records
-- Race: a worker holds a route of it. Its settlement finds no row and changes nothing.
DELETE FROM records WHERE notification_id = ANY (:notification_ids::text[]);

-- name: erase_outbox
DELETE FROM outbox WHERE notification_id = ANY (:notification_ids::text[]);

-- name: erase_receipts
DELETE FROM receipts WHERE notification_id = ANY (:notification_ids::text[]);

-- name: erase_members
DELETE FROM digest_members WHERE notification_id = ANY (:notification_ids::text[]);

-- name: erase_routes
DELETE FROM routes r
WHERE r.notification_id = ANY (:notification_ids::text[])
  AND (r.recipient_ref = ANY (:refs::text[]) OR (r.address = ANY (:addresses::text[]) AND r.recipient_ref NOT LIKE 'user:%'))
RETURNING r.notification_id, r.route_id;

-- name: erase_attempts_of
DELETE FROM attempts a USING unnest(:notification_id::text[], :route_id::text[]) AS gone (notification_id, route_id)
WHERE a.notification_id = gone.notification_id AND a.route_id = gone.route_id;

-- name: erase_outbox_of
DELETE FROM outbox o USING unnest(:notification_id::text[], :route_id::text[]) AS gone (notification_id, route_id)
WHERE o.notification_id = gone.notification_id AND o.route_id = gone.route_id;

-- name: erase_receipts_of
DELETE FROM receipts c USING unnest(:notification_id::text[], :route_id::text[]) AS gone (notification_id, route_id)
WHERE c.notification_id = gone.notification_id AND c.route_id = gone.route_id;

-- name: erase_audience
UPDATE records SET recipient_user_ids = recipient_user_ids - :user_id::text,
    user_id = CASE WHEN user_id = :user_id THEN NULL ELSE user_id END
WHERE notification_id = ANY (:notification_ids::text[]);

-- name: erase_preferences
DELETE FROM preferences WHERE tenant_id = :tenant_id AND user_id = ANY (:people::text[]) RETURNING user_id;

-- name: erase_collapses
DELETE FROM collapses WHERE tenant_id = :tenant_id AND audience = ANY (:audiences::text[]) RETURNING audience;

-- name: erase_throttles
DELETE FROM throttles WHERE tenant_id = :tenant_id AND audience = ANY (:audiences::text[]) RETURNING audience;

-- name: erase_digests
-- Race: an event joins at this moment. It finds no digest and opens another one. The rows of its events go with it.
DELETE FROM digests WHERE tenant_id = :tenant_id AND audience = ANY (:audiences::text[]) RETURNING digest_id;

-- name: erase_stream_entries
DELETE FROM stream_entries WHERE user_id = :user_id RETURNING seq;

-- name: erase_streams
DELETE FROM streams WHERE user_id = :user_id RETURNING user_id;

-- name: erase_presence
DELETE FROM presence WHERE user_id = :user_id RETURNING user_id;

-- name: erase_stream_tickets
DELETE FROM stream_tickets WHERE user_id = :user_id AND tenant_id IS NOT DISTINCT FROM :tenant_id::text RETURNING digest;

-- name: erase_audit_logs
DELETE FROM audit_logs WHERE user_id = :user_id RETURNING audit_id;

-- name: mark_suppressions
-- The mark stands beside the suppression until every process has read it: an acceptance finds one of the two.
-- Race: a report renews the suppression. `hash_suppressions` takes what it finds by then.
INSERT INTO suppressions (channel, address, tenant_id, kind, reason, source, created_at, expires_at)
SELECT channel, :mark::text, tenant_id, kind, 'erased', :source, created_at, expires_at FROM suppressions
WHERE address = :address AND tenant_id = :tenant_id
ON CONFLICT (channel, address, tenant_id) DO UPDATE SET source = excluded.source
RETURNING suppression_id;

-- name: forget_older_marks
-- Of `mark_suppressions`, and of a repeat: the address was suppressed again after an earlier erasure. The suppression takes the mark.
DELETE FROM suppressions
WHERE address = :mark::text AND tenant_id = :tenant_id AND channel IN (
    SELECT channel FROM suppressions WHERE address = :address AND tenant_id = :tenant_id)
RETURNING suppression_id;

-- name: hash_suppressions
-- Race: a report renews the suppression. The second one waits, and suppresses the address anew.
UPDATE suppressions SET address = :mark::text, source = :source, reason = 'erased'
WHERE address = :address AND tenant_id = :tenant_id
RETURNING suppression_id;

-- name: erase_receipts_to
-- Those of a notification that is still there belong to its recipient: another tenant's person has the same address.
DELETE FROM receipts c WHERE c.address = ANY (:addresses::text[])
  AND NOT EXISTS (SELECT FROM records n WHERE n.notification_id = c.notification_id);

-- name: malformed_after
SELECT stream_entry_id, idempotency_key, failure_message, raw_fields FROM malformed_intents
WHERE stream_entry_id > :after ORDER BY stream_entry_id LIMIT :limit;

-- name: erase_malformed
DELETE FROM malformed_intents WHERE stream_entry_id = ANY (:entries::text[]) RETURNING stream_entry_id;

-- name: actions_after
-- Of the person's tenant, and of operators, who act for all tenants.
SELECT action_id, subject, reason, detail_json FROM admin_actions
WHERE action_id > :action_id AND coalesce(tenant_id, :tenant_id) = :tenant_id ORDER BY action_id LIMIT :limit;

-- name: clean_action
UPDATE admin_actions SET subject = :subject, reason = :reason, detail_json = :detail_json::text WHERE action_id = :action_id;

-- name: person_digests
SELECT digest_id, channels, digest_key, opened_at, closes_at, told_at, event_count FROM digests
WHERE tenant_id = :tenant_id AND audience = ANY (:audiences::text[]) ORDER BY opened_at, digest_id;

-- name: person_stream_entries
SELECT seq, notification_id, pushed_at, delivered_at, read_at FROM stream_entries WHERE user_id = :user_id ORDER BY seq;

-- name: person_receipts
SELECT c.provider, c.kind, c.notification_id, c.address, c.reason, c.occurred_at, c.received_at FROM receipts c
WHERE c.address = ANY (:addresses::text[]) AND NOT EXISTS (
    SELECT FROM records n WHERE n.notification_id = c.notification_id AND coalesce(n.tenant_id, '') <> :tenant_id)
ORDER BY c.received_at, c.receipt_key;

-- name: person_audit_logs
SELECT notification_type, template_id, status, trace_id, created_at FROM audit_logs WHERE user_id = :user_id
ORDER BY created_at, audit_id;

-- name: begin_erasure
-- Race: two processes erase the same person. The second waits, and both go on: every step may be repeated.
INSERT INTO erasures (subject, tenant_id, person_json, began_at, held_until)
VALUES (:subject, :tenant_id, :person_json, clock_timestamp(), clock_timestamp() + :lease_seconds::float8 * interval '1 second')
ON CONFLICT (subject) DO UPDATE SET person_json = excluded.person_json, held_until = excluded.held_until;

-- name: pending_erasures
--   held_until              a process that died holds an erasure only for so long.
SELECT subject, tenant_id, person_json FROM erasures
WHERE NOT :waiting::boolean OR held_until < clock_timestamp()
ORDER BY began_at, subject;

-- name: end_erasure
DELETE FROM erasures WHERE subject = :subject;
