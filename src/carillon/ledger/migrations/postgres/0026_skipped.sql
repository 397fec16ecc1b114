-- What a gate skipped and can be evaluated again. Runs as 0014 does: every statement may run again.
-- online

DROP INDEX CONCURRENTLY IF EXISTS routes_skipped_idx;

CREATE INDEX CONCURRENTLY routes_skipped_idx ON routes (skipped_at)
    WHERE status = 'skipped' AND last_error_classification IN ('suppressed', 'category', 'throttle');
