-- Statements of the tickets that open a stream.

-- name: add_ticket
INSERT INTO stream_tickets (digest, user_id, tenant_id, token_until_ms, token_id, expires_at)
VALUES (:digest, :user_id, :tenant_id, :token_until_ms, :token_id,
    clock_timestamp() + :seconds::double precision * interval '1 second');

-- name: forget_tickets
-- Race: every process of a fleet clears up.
--   SKIP LOCKED             nobody waits for what another forgets, and few at a time never hold anybody up.
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
