-- Replays of what an endpoint had taken: a stop makes such a route delivered again, not a dead letter. The default is in the catalogue:
-- no row is written.

-- part: api

-- Whether the action sent again what was delivered before.
ALTER TABLE redriven_routes ADD COLUMN delivered boolean NOT NULL DEFAULT FALSE;
