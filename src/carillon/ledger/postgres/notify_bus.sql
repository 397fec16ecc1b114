-- Statements of the post between replicas.

-- name: post_letters
-- only: one SQLite file has one process.
-- Outside of any transaction that writes rows: a NOTIFY holds a lock of the whole database until its commit.
SELECT pg_notify(channel, letter) FROM unnest($1::text[], $2::text[]) AS given (channel, letter);
