-- Statements of copying a ledger to the other dialect.

-- name: copy_columns
-- only: SQLite's types do not tell a time from a number, so this side says what every column holds.
SELECT table_name, column_name, data_type FROM information_schema.columns
WHERE table_schema = current_schema() AND is_generated = 'NEVER' ORDER BY table_name, ordinal_position;

-- name: copy_keys
-- only: SQLite follows the order of these keys.
SELECT c.relname AS table_name, array_agg(a.attname::text ORDER BY k.place) AS key
FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = quote_ident(current_schema())::regnamespace
CROSS JOIN LATERAL unnest(i.indkey::int[]) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
WHERE i.indisprimary GROUP BY c.relname;

-- name: copy_reading
-- Race: none, it is read in one snapshot. Bytewise, as the other dialect orders texts; $3 is the first key not read yet.
SELECT format('SELECT %s FROM %I %s ORDER BY %s',
    (SELECT string_agg(quote_ident(c), ', ') FROM unnest($2::text[]) c), $1::text,
    CASE WHEN $4::boolean THEN format('WHERE (%s) > (%s)', ordered.by, ordered.places) ELSE '' END, ordered.by)
FROM (SELECT string_agg(quote_ident(k.name) || CASE WHEN c.data_type = 'text' THEN ' COLLATE "C"' ELSE '' END, ', '
                        ORDER BY k.place) AS by,
             string_agg('$' || k.place, ', ' ORDER BY k.place) AS places
      FROM unnest($3::text[]) WITH ORDINALITY AS k (name, place)
      JOIN information_schema.columns c
        ON c.table_schema = current_schema() AND c.table_name = $1::text AND c.column_name = k.name) AS ordered;

-- name: copy_last
-- How far an interrupted copy has come; rows are written in this order, a page at a time.
SELECT format('SELECT %s FROM %I ORDER BY %s LIMIT 1', string_agg(quote_ident(k.name), ', ' ORDER BY k.place), $1::text,
    string_agg(quote_ident(k.name) || CASE WHEN c.data_type = 'text' THEN ' COLLATE "C"' ELSE '' END || ' DESC', ', '
               ORDER BY k.place))
FROM unnest($2::text[]) WITH ORDINALITY AS k (name, place)
JOIN information_schema.columns c
  ON c.table_schema = current_schema() AND c.table_name = $1::text AND c.column_name = k.name;

-- name: copy_count
SELECT format('SELECT count(*) FROM %I', $1::text);

-- name: copy_marks
-- The last number of every sequence: the number of a removed row must not come again.
SELECT table_name::text AS name,
       pg_sequence_last_value(pg_get_serial_sequence(quote_ident(table_name), column_name)::regclass) AS last
FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES'
UNION ALL
SELECT 'claim_tokens', pg_sequence_last_value('claim_tokens'::regclass);

-- name: copy_mark
SELECT setval(CASE WHEN $1::text = 'claim_tokens' THEN 'claim_tokens'
                   ELSE (SELECT pg_get_serial_sequence(quote_ident(table_name), column_name)
                         FROM information_schema.columns
                         WHERE table_schema = current_schema() AND table_name = $1::text AND is_identity = 'YES')
              END::regclass, $2::bigint);

-- name: copy_neighbours
-- only: SQLite's lock shows it. Sessions on a read-only server do not count.
SELECT coalesce(array_agg(DISTINCT application_name), '{}') FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'carillon-%'
  AND current_setting('transaction_read_only') = 'off';
