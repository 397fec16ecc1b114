-- Every template of before is of the simple engine. The defaults are constants: no row is written and no lock is held.

-- part: api

ALTER TABLE templates
    ADD COLUMN engine text COLLATE "C" NOT NULL DEFAULT 'simple',
    ADD COLUMN kind text COLLATE "C" NOT NULL DEFAULT 'message',
    -- The source of the HTML, where it is written in MJML.
    ADD COLUMN mjml text,
    -- The key of the layout around it.
    ADD COLUMN layout text COLLATE "C",
    -- Values for previews.
    ADD COLUMN sample_json text;
