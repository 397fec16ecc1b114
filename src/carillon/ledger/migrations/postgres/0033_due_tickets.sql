-- A row of `due` is found by its ticket, however many of its group are due at the same moment. Runs as 0012 does, while other processes
-- accept and send: every statement may run again.
-- online

DROP INDEX CONCURRENTLY IF EXISTS due_tickets_idx;

CREATE INDEX CONCURRENTLY due_tickets_idx ON due (lane, provider, grp, due_at, ticket);

DROP INDEX CONCURRENTLY IF EXISTS due_turns_idx;

ALTER INDEX due_tickets_idx RENAME TO due_turns_idx;
