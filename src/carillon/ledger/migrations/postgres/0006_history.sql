-- How far history has been copied to where it is looked back upon.

-- part: history

CREATE TABLE history_cursor (
    -- There is one.
    only_row        boolean PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    changed_at      timestamptz NOT NULL,
    notification_id text COLLATE "C" NOT NULL,
    route_id        text COLLATE "C" NOT NULL,
    owner           text NOT NULL,
    held_until      timestamptz NOT NULL
);

-- In the order in which routes came to their end; open routes are not in it, so that only an ending pays for it.
CREATE INDEX routes_ended_idx ON routes (updated_at) WHERE next_attempt_at IS NULL;
