-- Consent: the category of a message, and what people choose by category.

ALTER TABLE records ADD COLUMN category TEXT;

-- part: api

ALTER TABLE templates ADD COLUMN category TEXT;
-- By category and channel; only explicit choices.
ALTER TABLE preferences ADD COLUMN categories_json TEXT NOT NULL DEFAULT '{}';
ALTER TABLE preferences ADD COLUMN time_zone TEXT;
