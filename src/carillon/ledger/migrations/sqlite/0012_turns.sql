-- Turns over groups.

-- `grp` is the number of the route's group; rows of today share one. `turn` is the same number while the route stands in the turns,
-- and empty while it is claimed, waits for its time, or has ended.
ALTER TABLE routes ADD COLUMN grp INTEGER NOT NULL DEFAULT 0;
ALTER TABLE routes ADD COLUMN turn INTEGER;

-- The places that are taken in groups with a cap.
CREATE INDEX routes_places_idx ON routes (grp) WHERE grp < 0 AND claim_token IS NOT NULL AND turn IS NULL;

-- What is open, in one of two orders: in turns what is due, where a claim skips from group to group, and by time what waits for it.
DROP INDEX routes_due_idx;
CREATE INDEX routes_due_idx ON routes (lane, provider, turn, next_attempt_at) WHERE next_attempt_at IS NOT NULL;
