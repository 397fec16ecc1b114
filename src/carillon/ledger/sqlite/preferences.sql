-- Statements of preferences.

-- name: preferences
SELECT * FROM preferences WHERE tenant_id = :tenant_id AND user_id = :user_id;

-- name: wish
-- Race: a person changes the language while an unsubscribe switches a channel off.
--   BEGIN IMMEDIATE         the second changes what the first has written, not what it had read.
INSERT INTO preferences (tenant_id, user_id, preferred_locale, channels_json, contacts_json, quiet_hours_json,
                         updated_at)
VALUES (:tenant_id, :user_id, :preferred_locale, :channels_json, json_patch('{}', :contacts_json), :quiet_hours_json,
    :now)
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET preferred_locale = CASE WHEN :replace OR :has_locale THEN :preferred_locale ELSE preferred_locale END,
    channels_json = CASE WHEN :replace THEN :channels_json ELSE json_patch(channels_json, :channels_json) END,
    contacts_json = CASE WHEN :replace THEN json_patch('{}', :contacts_json) ELSE json_patch(contacts_json,
        :contacts_json) END,
    quiet_hours_json = CASE WHEN :replace OR :has_quiet_hours THEN :quiet_hours_json ELSE quiet_hours_json END,
    updated_at = :now
RETURNING *;
