-- The keys that addresses and contents are sealed with; a start without one of them is refused.
CREATE TABLE seal_keys (
    key_id        text COLLATE "C" PRIMARY KEY,
    first_used_at timestamptz NOT NULL
);
