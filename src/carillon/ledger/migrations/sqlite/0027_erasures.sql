-- Erasures that have begun and have not ended: after a crash another process goes on with the same addresses.

CREATE TABLE erasures (
    -- A salted hash of the person, as in the audit trail.
    subject     TEXT PRIMARY KEY,
    tenant_id   TEXT NOT NULL,
    -- The person's id and every address that was known when the erasure began. The row goes when the erasure ends.
    person_json TEXT NOT NULL,
    began_at    INTEGER NOT NULL,
    -- Until when the process that erases is believed to be alive.
    held_until  INTEGER NOT NULL
);
