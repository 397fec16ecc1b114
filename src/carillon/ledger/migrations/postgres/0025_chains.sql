-- Chains of channels, and how long a delivery report may take. Runs as 0014 does: every statement may run again.
-- online

SET lock_timeout = '200ms';

-- goal: what the chain of a person is tried for. step: the place of a route in it. not_before: the end of the quiet hours that
-- hold it. receipt_due: when a message without a delivery report counts as not delivered. All are empty for most routes.
ALTER TABLE routes
    ADD COLUMN IF NOT EXISTS goal text,
    ADD COLUMN IF NOT EXISTS step smallint,
    ADD COLUMN IF NOT EXISTS not_before timestamptz,
    ADD COLUMN IF NOT EXISTS receipt_due timestamptz;

RESET lock_timeout;

DROP INDEX CONCURRENTLY IF EXISTS routes_receipt_due_idx;

CREATE INDEX CONCURRENTLY routes_receipt_due_idx ON routes (receipt_due) WHERE receipt_due IS NOT NULL;
