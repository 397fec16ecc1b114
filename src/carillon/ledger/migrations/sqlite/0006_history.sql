-- How far history has been copied to where it is looked back upon.

-- part: history

CREATE TABLE history_cursor (
    -- There is one.
    only_row        INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    changed_at      INTEGER NOT NULL,
    notification_id TEXT NOT NULL,
    route_id        TEXT NOT NULL,
    owner           TEXT NOT NULL,
    held_until      INTEGER NOT NULL
);

-- In the order in which routes came to their end; open routes are not in it, so that only an ending pays for it.
CREATE INDEX routes_ended_idx ON routes (updated_at) WHERE next_attempt_at IS NULL;
