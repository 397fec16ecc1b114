-- Statements of what the ledger keeps about people: their preferences, and the addresses that nothing is sent to.

-- name: suppress
-- Race: an operator adds a suppression meanwhile.
--   ON CONFLICT             one row a scope: tenants have rows of their own. A suppression never becomes shorter: the
--                           later end stays, with its kind and reason. One that was over begins anew.
INSERT INTO suppressions (channel, address, tenant_id, kind, reason, source, created_at, expires_at)
VALUES (:channel, :address, :tenant_id, :kind, :reason, :source, :now,
        coalesce(:until_ms, :now + CAST(round(:seconds * 1000) AS INTEGER)))
ON CONFLICT (channel, address, tenant_id) DO UPDATE
SET kind = excluded.kind, reason = excluded.reason, source = excluded.source, expires_at = excluded.expires_at,
    created_at = CASE WHEN expires_at <= excluded.created_at THEN excluded.created_at ELSE created_at END
WHERE expires_at < coalesce(excluded.expires_at, 9223372036854775807);

-- name: unsuppress
DELETE FROM suppressions WHERE channel = :channel AND address = :address AND tenant_id = :tenant_id
RETURNING suppression_id;

-- name: suppression
SELECT s.* FROM suppressions s
WHERE s.suppression_id = :suppression_id AND (s.expires_at IS NULL OR s.expires_at > :now);

-- name: suppressions
-- Suppressions that are over are left out: they have no effect.
--   with_shared             a tenant that asks about one address also sees what everybody's suppression does to it.
WITH matching AS MATERIALIZED (
    SELECT s.* FROM suppressions s
    WHERE (:channel IS NULL OR s.channel = :channel)
      AND (:address IS NULL OR s.address = :address)
      AND (:tenant_id IS NULL OR s.tenant_id = :tenant_id OR (:with_shared AND s.tenant_id = ''))
      AND (:source IS NULL OR s.source = :source)
      AND (:kind IS NULL OR s.kind = :kind)
      AND (s.expires_at IS NULL OR s.expires_at > :now)
), page AS (
    SELECT *, created_at * 1000 AS place FROM matching
    WHERE :before_us IS NULL OR (created_at, suppression_id) < (:before_us / 1000, :before_id)
    ORDER BY created_at DESC, suppression_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.created_at DESC, page.suppression_id DESC;

-- name: suppression_in_force
-- The condition is the one of `enrol_route` and of `claim_candidates`: explain asks here what they will find.
SELECT s.suppression_id, s.kind, s.expires_at, s.reason, s.source, s.tenant_id FROM suppressions s
WHERE s.channel = :channel AND s.address = :address AND s.tenant_id IN ('', :tenant_id)
  AND (s.expires_at IS NULL OR s.expires_at > max(:now, coalesce(:due_ms, :now)))
ORDER BY s.expires_at IS NULL DESC, s.expires_at DESC, s.tenant_id DESC
LIMIT 1;

-- name: prune_suppressions
DELETE FROM suppressions WHERE expires_at <= :now;

-- name: preferences
SELECT * FROM preferences WHERE tenant_id = :tenant_id AND user_id = :user_id;

-- name: change_preferences
-- Race: a person changes the language while an unsubscribe switches a channel off.
--   BEGIN IMMEDIATE         the second changes the row that the first has written.
INSERT INTO preferences (tenant_id, user_id, preferred_locale, channels_json, categories_json, contacts_json,
                         time_zone, quiet_hours_json, updated_at)
VALUES (:tenant_id, :user_id, :preferred_locale, :channels_json, json_patch('{}', :categories_json),
    json_patch('{}', :contacts_json), :time_zone, :quiet_hours_json, :now)
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET preferred_locale = CASE WHEN :replace OR :has_locale THEN :preferred_locale ELSE preferred_locale END,
    channels_json = CASE WHEN :replace THEN :channels_json ELSE json_patch(channels_json, :channels_json) END,
    categories_json = CASE WHEN :replace THEN json_patch('{}', :categories_json)
                           ELSE json_patch(categories_json, :categories_json) END,
    contacts_json = CASE WHEN :replace THEN json_patch('{}', :contacts_json) ELSE json_patch(contacts_json,
        :contacts_json) END,
    time_zone = CASE WHEN :replace OR :has_time_zone THEN :time_zone ELSE time_zone END,
    quiet_hours_json = CASE WHEN :replace OR :has_quiet_hours THEN :quiet_hours_json ELSE quiet_hours_json END,
    updated_at = :now
RETURNING *;

-- name: category_choices
-- How many people have switched a category on or off, channel by channel, among at most so many people.
WITH people AS MATERIALIZED (
    SELECT p.categories_json FROM preferences p WHERE :tenant_id IS NULL OR p.tenant_id = :tenant_id LIMIT :limit
)
SELECT category.key AS category, channel.key AS channel, count(*) FILTER (WHERE channel.value) AS wanted,
       count(*) FILTER (WHERE NOT channel.value) AS unwanted, (SELECT count(*) FROM people) AS people
FROM (SELECT 1) AS always
LEFT JOIN people ON TRUE
LEFT JOIN json_each(people.categories_json) AS category ON TRUE
LEFT JOIN json_each(category.value) AS channel ON TRUE
GROUP BY category.key, channel.key;
