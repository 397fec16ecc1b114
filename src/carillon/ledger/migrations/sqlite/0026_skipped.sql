-- What a gate skipped and can be evaluated again.
CREATE INDEX routes_skipped_idx ON routes (skipped_at)
    WHERE status = 'skipped' AND last_error_classification IN ('suppressed', 'category', 'throttle');
