-- What `carillon ledger tidy` removes of the part history, once every table is empty.
DROP INDEX IF EXISTS routes_ended_idx;
DROP TABLE history_cursor;
