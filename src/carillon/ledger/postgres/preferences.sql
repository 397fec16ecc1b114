-- Statements of preferences.

-- name: preferences
SELECT p.* FROM unnest(:tenant_id::text[], :user_id::text[]) AS asked (tenant_id, user_id)
JOIN preferences p ON p.tenant_id = asked.tenant_id AND p.user_id = asked.user_id;

-- name: wish
-- Race: a person changes the language while an unsubscribe switches a channel off.
--   ON CONFLICT             the second waits for the first and changes what the first has written, not what it had read.
INSERT INTO preferences AS p (tenant_id, user_id, preferred_locale, channels_json, contacts_json, quiet_hours_json,
                              updated_at)
VALUES (:tenant_id, :user_id, :preferred_locale, :channels_json::text, jsonb_strip_nulls(:contacts_json::jsonb)::text,
    :quiet_hours_json, clock_timestamp())
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET preferred_locale = CASE WHEN :replace::boolean OR :has_locale::boolean THEN :preferred_locale
                            ELSE p.preferred_locale END,
    channels_json = CASE WHEN :replace THEN :channels_json
                         ELSE (p.channels_json::jsonb || :channels_json::jsonb)::text END,
    contacts_json = CASE WHEN :replace THEN jsonb_strip_nulls(:contacts_json::jsonb)::text
                         ELSE jsonb_strip_nulls(p.contacts_json::jsonb || :contacts_json::jsonb)::text END,
    quiet_hours_json = CASE WHEN :replace OR :has_quiet_hours::boolean THEN :quiet_hours_json
                            ELSE p.quiet_hours_json END,
    updated_at = clock_timestamp()
RETURNING *;
