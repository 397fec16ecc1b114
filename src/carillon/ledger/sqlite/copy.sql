-- Statements of copying a ledger to the other dialect.

-- name: copy_tables
-- only: this side says which tables are ours; a PostgreSQL schema may hold others beside them.
SELECT m.name AS table_name, c.name AS column_name
FROM sqlite_master m JOIN pragma_table_xinfo(m.name) c
WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND c.hidden = 0 ORDER BY m.name, c.cid;

-- name: copy_reading
-- Race: none, the file is locked. ?4 says whether to begin after a key.
SELECT printf('SELECT %s FROM "%w" %s ORDER BY %s', columns.named, ?1,
    CASE WHEN ?4 THEN printf('WHERE (%s) > (%s)', ordered.named, ordered.places) ELSE '' END, ordered.named)
FROM (SELECT group_concat(printf('"%w"', value), ', ') AS named FROM (SELECT value FROM json_each(?2) ORDER BY key))
     AS columns,
     (SELECT group_concat(printf('"%w"', value), ', ') AS named, group_concat('?', ', ') AS places
      FROM (SELECT value FROM json_each(?3) ORDER BY key)) AS ordered;

-- name: copy_last
-- How far an interrupted copy has come; rows are written in this order, a page at a time.
SELECT printf('SELECT %s FROM "%w" ORDER BY %s LIMIT 1', group_concat(printf('"%w"', value), ', '), ?1,
    group_concat(printf('"%w" DESC', value), ', '))
FROM (SELECT value FROM json_each(?2) ORDER BY key);

-- name: copy_count
SELECT printf('SELECT count(*) FROM "%w"', ?1);

-- name: copy_writing
-- only: PostgreSQL takes rows by COPY.
SELECT printf('INSERT INTO "%w" (%s) VALUES (%s)', ?1, group_concat(printf('"%w"', value), ', '), group_concat('?', ', '))
FROM (SELECT value FROM json_each(?2) ORDER BY key);

-- name: copy_marks
-- The last number of every sequence: the number of a removed row must not come again.
SELECT name, seq AS last FROM sqlite_sequence UNION ALL SELECT 'claim_tokens', last FROM claim_tokens;

-- name: copy_mark_tokens
-- only: a sequence of PostgreSQL is marked like all the others.
UPDATE claim_tokens SET last = max(last, ?1);

-- name: copy_unmark
-- only: PostgreSQL changes a mark in one step.
DELETE FROM sqlite_sequence WHERE name = ?1;

-- name: copy_mark
INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2);
