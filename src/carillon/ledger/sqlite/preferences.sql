-- Statements of preferences.

-- name: preferences
SELECT p.* FROM json_each(?1) AS asked
JOIN preferences p ON p.tenant_id = json_extract(asked.value, '$[0]') AND p.user_id = json_extract(asked.value, '$[1]');

-- name: wish
-- Race: a person changes the language while an unsubscribe switches a channel off.
--   BEGIN IMMEDIATE         the second changes what the first has written, not what it had read.
INSERT INTO preferences (tenant_id, user_id, preferred_locale, channels_json, contacts_json, quiet_hours_json,
                         updated_at)
VALUES (?1, ?2, ?5, ?6, json_patch('{}', ?7), ?9, ?10)
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET preferred_locale = CASE WHEN ?3 OR ?4 THEN ?5 ELSE preferred_locale END,
    channels_json = CASE WHEN ?3 THEN ?6 ELSE json_patch(channels_json, ?6) END,
    contacts_json = CASE WHEN ?3 THEN json_patch('{}', ?7) ELSE json_patch(contacts_json, ?7) END,
    quiet_hours_json = CASE WHEN ?3 OR ?8 THEN ?9 ELSE quiet_hours_json END,
    updated_at = ?10
RETURNING *;
