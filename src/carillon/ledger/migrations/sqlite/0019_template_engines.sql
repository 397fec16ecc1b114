-- Every template of before is of the simple engine. The defaults are constants: no row is written.

-- part: api

ALTER TABLE templates ADD COLUMN engine TEXT NOT NULL DEFAULT 'simple';
ALTER TABLE templates ADD COLUMN kind TEXT NOT NULL DEFAULT 'message';
-- The source of the HTML, where it is written in MJML.
ALTER TABLE templates ADD COLUMN mjml TEXT;
-- The key of the layout around it.
ALTER TABLE templates ADD COLUMN layout TEXT;
-- Values for previews.
ALTER TABLE templates ADD COLUMN sample_json TEXT;
