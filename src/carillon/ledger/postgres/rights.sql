-- Statements of a person's rights. An erasure may be repeated: each of them removes what is still there.

-- name: person_addresses
SELECT DISTINCT r.address FROM routes r JOIN records n ON n.notification_id = r.notification_id
WHERE r.recipient_ref = :recipient_ref AND coalesce(n.tenant_id, '') = :tenant_id AND r.address IS NOT NULL;

-- name: person_notifications
-- Race: a notification is accepted meanwhile. The erasure asks until nothing is left.
--   whole                   nobody else gets it: the record goes with everything of it.
SELECT n.notification_id, NOT EXISTS (
           SELECT FROM routes r WHERE r.notification_id = n.notification_id
             AND r.recipient_ref <> :recipient_ref AND (r.address = ANY (:addresses::text[])) IS NOT TRUE) AS whole
FROM records n
WHERE coalesce(n.tenant_id, '') = :tenant_id AND n.notification_id > :after
  AND (n.user_id = :user_id OR n.recipient_user_ids ? :user_id OR EXISTS (
      SELECT FROM routes r WHERE r.notification_id = n.notification_id
        AND (r.recipient_ref = :recipient_ref OR r.address = ANY (:addresses))))
ORDER BY n.notification_id
LIMIT :limit;

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
  AND (r.recipient_ref = :recipient_ref OR r.address = ANY (:addresses::text[]))
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
DELETE FROM preferences WHERE tenant_id = :tenant_id AND user_id = :user_id RETURNING user_id;

-- name: erase_collapses
DELETE FROM collapses WHERE tenant_id = :tenant_id AND audience = :audience RETURNING audience;

-- name: erase_throttles
DELETE FROM throttles WHERE tenant_id = :tenant_id AND audience = :audience RETURNING audience;

-- name: erase_digests
-- Race: an event joins at this moment. It finds no digest and opens another one.
DELETE FROM digests WHERE tenant_id = :tenant_id AND audience = :audience RETURNING digest_id;

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

-- name: forget_older_marks
-- A repeat: the address was suppressed again after an earlier erasure, and the newer suppression takes the mark.
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
DELETE FROM receipts WHERE address = ANY (:addresses::text[]);

-- name: malformed_after
SELECT stream_entry_id, idempotency_key, failure_message, raw_fields FROM malformed_intents
WHERE stream_entry_id > :after ORDER BY stream_entry_id LIMIT :limit;

-- name: erase_malformed
DELETE FROM malformed_intents WHERE stream_entry_id = ANY (:entries::text[]) RETURNING stream_entry_id;

-- name: actions_after
SELECT action_id, subject, reason, detail_json FROM admin_actions
WHERE action_id > :action_id ORDER BY action_id LIMIT :limit;

-- name: clean_action
UPDATE admin_actions SET subject = :subject, reason = :reason, detail_json = :detail_json::text WHERE action_id = :action_id;
