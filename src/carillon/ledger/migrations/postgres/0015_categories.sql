-- Consent: the category of a message, and what people choose by category.

-- Columns without a default are added without rewriting the table.
ALTER TABLE records ADD COLUMN category text;

-- part: api

ALTER TABLE templates ADD COLUMN category text;
ALTER TABLE preferences
    -- By category and channel; only explicit choices.
    ADD COLUMN categories_json text NOT NULL DEFAULT '{}',
    ADD COLUMN time_zone text;
