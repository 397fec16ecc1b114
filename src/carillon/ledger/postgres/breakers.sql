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
