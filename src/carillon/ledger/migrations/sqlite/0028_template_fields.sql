-- What a push or a message of the inbox carries beside its texts. Without a default: no row is written.

-- part: api

ALTER TABLE templates ADD COLUMN fields_json TEXT;
