-- Statements of messages between replicas.

-- name: send_messages
-- only: one SQLite file has one process.
-- Runs outside of transactions that write rows: a NOTIFY locks the whole database until its commit.
SELECT pg_notify(channel, letter) FROM unnest($1::text[], $2::text[]) AS given (channel, letter);
