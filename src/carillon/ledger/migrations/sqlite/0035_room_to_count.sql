-- PostgreSQL leaves room in the pages of throttles and digests; SQLite changes a row where it stands.

-- part: api
