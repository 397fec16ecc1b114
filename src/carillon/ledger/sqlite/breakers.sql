-- Statements of the breakers that processes share. The machine itself is domain/breaker.py; a row keeps its state.

-- name: breaker_look
-- No race: a look changes nothing, and most looks find a closed breaker.
SELECT state, failures, successes, opened_at / 1000.0 AS opened_at, probes_json, :now / 1000.0 AS now
FROM breakers WHERE service = :service AND provider = :provider;

-- name: breaker_lock
-- Race: the first of all to write the row; the transaction holds the file's one lock already.
INSERT INTO breakers (service, provider, state, failures, successes, opened_at, probes_json, updated_at)
VALUES (:service, :provider, 'closed', 0, 0, NULL, '[]', :now)
ON CONFLICT (service, provider) DO UPDATE SET updated_at = excluded.updated_at
RETURNING state, failures, successes, opened_at / 1000.0 AS opened_at, probes_json, :now / 1000.0 AS now;

-- name: breaker_keep
-- Runs under the lock of `breaker_lock`, in its transaction.
UPDATE breakers
SET state = :state, failures = :failures, successes = :successes, opened_at = CAST(round(:opened_at * 1000) AS INTEGER),
    probes_json = :probes_json
WHERE service = :service AND provider = :provider;

-- name: target_states
-- No race: a look changes nothing. The row without a target carries the time, also if there is no other.
SELECT target, state_json, :now / 1000.0 AS now FROM targets WHERE service = :service
UNION ALL
SELECT NULL, NULL, :now / 1000.0;

-- name: target_lock
-- Race: the first to write the row; the transaction holds the file's one lock already.
INSERT INTO targets (service, target, state_json, updated_at)
VALUES (:service, :target, '{}', :now)
ON CONFLICT (service, target) DO UPDATE SET updated_at = excluded.updated_at
RETURNING state_json, :now / 1000.0 AS now;

-- name: target_keep
-- Runs in the transaction of `target_lock`.
UPDATE targets SET state_json = :state_json WHERE service = :service AND target = :target;

-- name: target_forget
-- Runs in the transaction of `target_lock`.
DELETE FROM targets WHERE service = :service AND target = :target;
