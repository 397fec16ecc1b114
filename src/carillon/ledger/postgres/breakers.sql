-- Statements of the breakers that a fleet shares. The machine itself is domain/breaker.py; a row keeps its state.

-- name: breaker_look
-- No race: a look changes nothing, and most looks find a closed breaker.
SELECT state, failures, successes, date_part('epoch', opened_at) AS opened_at, probes_json,
       date_part('epoch', clock_timestamp()) AS now
FROM breakers WHERE service = :service AND provider = :provider;

-- name: breaker_lock
-- Races: every process that wants to change this breaker, and the first of all to write its row.
--   ON CONFLICT DO UPDATE   takes the row's lock whether it was there or not; the next one waits for our commit.
--   clock_timestamp()       is read under the lock, so that times grow from one holder to the next.
INSERT INTO breakers AS b (service, provider, state, failures, successes, opened_at, probes_json, updated_at)
VALUES (:service, :provider, 'closed', 0, 0, NULL, '[]', clock_timestamp())
ON CONFLICT (service, provider) DO UPDATE SET updated_at = clock_timestamp()
RETURNING b.state, b.failures, b.successes, date_part('epoch', b.opened_at) AS opened_at, b.probes_json,
    date_part('epoch', clock_timestamp()) AS now;

-- name: breaker_keep
-- Runs under the lock of `breaker_lock`, in its transaction.
UPDATE breakers
SET state = :state, failures = :failures, successes = :successes, opened_at = to_timestamp(:opened_at::float8),
    probes_json = :probes_json
WHERE service = :service AND provider = :provider;

-- name: target_states
-- No race: a look changes nothing. The row without a target carries the time, also if there is no other.
SELECT target, state_json, date_part('epoch', clock_timestamp()) AS now FROM targets WHERE service = :service
UNION ALL
SELECT NULL, NULL, date_part('epoch', clock_timestamp());

-- name: target_lock
-- Races: as `breaker_lock`: the first to write the row, and every process that changes this target.
INSERT INTO targets AS t (service, target, state_json, updated_at)
VALUES (:service, :target, '{}', clock_timestamp())
ON CONFLICT (service, target) DO UPDATE SET updated_at = clock_timestamp()
RETURNING t.state_json, date_part('epoch', clock_timestamp()) AS now;

-- name: target_keep
-- Runs under the lock of `target_lock`, in its transaction.
UPDATE targets SET state_json = :state_json WHERE service = :service AND target = :target;

-- name: target_forget
-- Runs under the lock of `target_lock`, in its transaction: a change that waits for the lock finds no row and inserts it.
DELETE FROM targets WHERE service = :service AND target = :target;
