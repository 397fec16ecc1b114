-- Statements of the payment service, and of messages on their way to a queue.

-- name: payment_by_key
SELECT * FROM payments
WHERE tenant_id = :tenant_id AND subscription_id = :subscription_id AND idempotency_key = :idempotency_key;

-- name: payment
SELECT * FROM payments WHERE transaction_id = :transaction_id;

-- name: add_payment
-- Race: one order arrives twice, and both were charged under its one transaction id.
--   ON CONFLICT             one row, and only who writes it adds messages.
INSERT INTO payments (transaction_id, subscription_id, status, amount, currency, action, event_id, idempotency_key,
                      gateway_reference, message, created_at, tenant_id)
VALUES (:transaction_id, :subscription_id, :status, :amount, :currency, :action, :event_id, :idempotency_key,
    :gateway_reference, :message, :now, :tenant_id)
ON CONFLICT DO NOTHING
RETURNING *;

-- name: add_refund
-- Race: one refund is asked for twice at the same moment.
--   transaction_id UNIQUE   the first is kept, the second is told that it was done.
INSERT INTO refunds (refund_id, transaction_id, amount, reason, status, gateway_reference, created_at, tenant_id)
VALUES (:refund_id, :transaction_id, :amount, :reason, :status, :gateway_reference, :now, :tenant_id)
ON CONFLICT (transaction_id) DO NOTHING
RETURNING refund_id;

-- name: refunds
SELECT * FROM refunds
WHERE transaction_id = :transaction_id AND (:tenant_id IS NULL OR tenant_id = :tenant_id)
ORDER BY created_at;

-- name: add_outgoing
-- Race: the process that commits this brings it to the queue at once; others must not at the same moment.
--   next_attempt_at         born leased: others look when the bringer has had its time.
INSERT INTO queue_outbox (message_id, queue, action, correlation_id, idempotency_key, payload_json, created_at,
                          next_attempt_at)
VALUES (:message_id, :queue, :action, :correlation_id, :idempotency_key, :body, :now,
    :now + CAST(:lease_seconds * 1000 AS INTEGER))
ON CONFLICT (message_id) DO NOTHING;

-- name: any_outgoing_due
-- only: PostgreSQL takes nothing at no cost; here a look spares every idle poll a commit.
SELECT EXISTS (SELECT 1 FROM queue_outbox WHERE next_attempt_at <= :now);

-- name: due_outgoing
-- Races: other processes that bring messages, and one that died before it could.
--   BEGIN IMMEDIATE         takers come one after the other and never share a message.
--   next_attempt_at <= now  what nobody brought and what its bringer dropped are the same thing.
UPDATE queue_outbox SET next_attempt_at = :now + CAST(:lease_seconds * 1000 AS INTEGER)
WHERE message_id IN (
    SELECT message_id FROM queue_outbox WHERE next_attempt_at <= :now ORDER BY next_attempt_at LIMIT :limit
)
RETURNING message_id, queue, action, correlation_id, idempotency_key, payload_json, created_at;

-- name: drop_outgoing
DELETE FROM queue_outbox WHERE message_id IN (SELECT value FROM json_each(:message_ids));
