-- Throttles and digests count in place: a page with room takes the new version of a row, and then no index is written. Only new pages
-- keep the room; a row of today finds it when its page has been vacuumed.

-- part: api

ALTER TABLE throttles SET (fillfactor = 80);
ALTER TABLE digests SET (fillfactor = 80);
