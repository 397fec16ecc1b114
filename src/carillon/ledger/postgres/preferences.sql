-- Statements of preferences.

-- name: preferences
SELECT p.* FROM unnest($1::text[], $2::text[]) AS asked (tenant_id, user_id)
JOIN preferences p ON p.tenant_id = asked.tenant_id AND p.user_id = asked.user_id;

-- name: wish
-- Race: a person changes the language while an unsubscribe switches a channel off.
--   ON CONFLICT             the second waits for the first and changes what the first has written, not what it had read.
INSERT INTO preferences AS p (tenant_id, user_id, preferred_locale, channels_json, contacts_json, quiet_hours_json,
                              updated_at)
VALUES ($1, $2, $5, $6::text, jsonb_strip_nulls($7::jsonb)::text, $9, clock_timestamp())
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET preferred_locale = CASE WHEN $3::boolean OR $4::boolean THEN $5 ELSE p.preferred_locale END,
    channels_json = CASE WHEN $3 THEN $6 ELSE (p.channels_json::jsonb || $6::jsonb)::text END,
    contacts_json = CASE WHEN $3 THEN jsonb_strip_nulls($7::jsonb)::text
                         ELSE jsonb_strip_nulls(p.contacts_json::jsonb || $7::jsonb)::text END,
    quiet_hours_json = CASE WHEN $3 OR $8::boolean THEN $9 ELSE p.quiet_hours_json END,
    updated_at = clock_timestamp()
RETURNING *;
