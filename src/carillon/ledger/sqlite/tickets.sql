-- Statements of the tickets that open a stream.

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
