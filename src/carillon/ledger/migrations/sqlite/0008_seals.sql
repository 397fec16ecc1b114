-- The keys that addresses and contents are sealed with; a start without one of them is refused.
CREATE TABLE seal_keys (
    key_id        TEXT PRIMARY KEY NOT NULL,
    first_used_at INTEGER NOT NULL
);
