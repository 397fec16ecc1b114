-- On SQLite the table of live notifications is read and not written, so nothing changes here; both dialects count the same steps.

-- part: streams
