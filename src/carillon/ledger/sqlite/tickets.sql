-- Statements of the tickets that open a stream.

-- name: add_ticket
INSERT INTO stream_tickets (digest, user_id, tenant_id, token_until_ms, token_id, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?7 + CAST(?6 * 1000 AS INTEGER));

-- name: forget_tickets
DELETE FROM stream_tickets WHERE digest IN (SELECT digest FROM stream_tickets WHERE expires_at < ?1 LIMIT 100);

-- name: open_ticket
-- Race: the same ticket is shown twice at the same moment.
--   NOT opened              writers follow one another, so the second finds it used.
UPDATE stream_tickets
SET opened = 1, expires_at = ?3 + CAST(?2 * 1000 AS INTEGER)
WHERE digest = ?1 AND NOT opened AND expires_at > ?3
RETURNING user_id, tenant_id, token_until_ms, token_id;

-- name: ticket
SELECT user_id, tenant_id, token_until_ms, token_id FROM stream_tickets WHERE digest = ?1 AND expires_at > ?2;
