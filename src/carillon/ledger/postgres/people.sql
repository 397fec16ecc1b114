-- Statements of what the ledger keeps about people: their preferences, and the addresses that nothing is sent to.

-- name: suppress
-- Races: two reports about one address at once; an operator adds a suppression meanwhile.
--   ON CONFLICT             one row a scope: tenants have rows of their own. A suppression never becomes shorter: the
--                           later end stays, with its kind and reason. One that was over begins anew.
--   milliseconds            what is shown is what is compared.
WITH clock AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) AS now
)
INSERT INTO suppressions AS s (channel, address, tenant_id, kind, reason, source, created_at, expires_at)
SELECT channel, address, tenant_id, kind, reason, source, clock.now,
       coalesce(to_timestamp(until_ms / 1000.0),
                date_trunc('milliseconds', clock.now + seconds * interval '1 second'))
FROM clock, unnest(:channel::text[], :address::text[], :tenant_id::text[], :kind::text[], :reason::text[],
                   :source::text[], :seconds::float8[], :until_ms::float8[])
    AS given (channel, address, tenant_id, kind, reason, source, seconds, until_ms)
ON CONFLICT (channel, address, tenant_id) DO UPDATE
SET kind = excluded.kind, reason = excluded.reason, source = excluded.source, expires_at = excluded.expires_at,
    created_at = CASE WHEN s.expires_at <= excluded.created_at THEN excluded.created_at ELSE s.created_at END
WHERE s.expires_at < coalesce(excluded.expires_at, 'infinity');

-- name: unsuppress
DELETE FROM suppressions WHERE channel = :channel AND address = :address AND tenant_id = :tenant_id
RETURNING suppression_id;

-- name: suppression
SELECT s.* FROM suppressions s
WHERE s.suppression_id = :suppression_id AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp());

-- name: suppressions
-- Suppressions that are over are left out: they have no effect.
--   with_shared             a tenant that asks about one address also sees what everybody's suppression does to it.
WITH matching AS MATERIALIZED (
    SELECT s.* FROM suppressions s
    WHERE (:channel::text IS NULL OR s.channel = :channel)
      AND (:address::text IS NULL OR s.address = :address)
      AND (:tenant_id::text IS NULL OR s.tenant_id = :tenant_id OR (:with_shared::boolean AND s.tenant_id = ''))
      AND (:source::text IS NULL OR s.source = :source)
      AND (:kind::text IS NULL OR s.kind = :kind)
      AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp())
), page AS (
    SELECT *, (extract(epoch FROM created_at) * 1000000)::bigint AS place FROM matching
    WHERE :before_us::bigint IS NULL OR (created_at, suppression_id)
        < (timestamptz 'epoch' + :before_us::float8 * interval '1 microsecond', :before_id::bigint)
    ORDER BY created_at DESC, suppression_id DESC LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (VALUES (1)) AS always (row)
LEFT JOIN page ON TRUE
ORDER BY page.created_at DESC, page.suppression_id DESC;

-- name: suppression_in_force
-- The condition is the one of `enrol` and of `claim`: explain asks here what they will find.
SELECT s.suppression_id, s.kind, s.expires_at, s.reason, s.source, s.tenant_id FROM suppressions s
WHERE s.channel = :channel AND s.address = :address AND s.tenant_id IN ('', :tenant_id)
  AND (s.expires_at IS NULL OR s.expires_at > greatest(clock_timestamp(), to_timestamp(:due_ms::float8 / 1000.0)))
ORDER BY s.expires_at DESC, s.tenant_id DESC
LIMIT 1;

-- name: prune_suppressions
-- Race: a report renews a suppression that is over at this moment. The second one waits and looks again.
DELETE FROM suppressions WHERE expires_at <= clock_timestamp();

-- name: preferences
SELECT p.* FROM unnest(:tenant_id::text[], :user_id::text[]) AS asked (tenant_id, user_id)
JOIN preferences p ON p.tenant_id = asked.tenant_id AND p.user_id = asked.user_id;

-- name: change_preferences
-- Race: a person changes the language while an unsubscribe switches a channel off.
--   ON CONFLICT             the second waits for the first and changes the row that the first has written.
--   jsonb_each              a change of one channel of a category leaves the others as they are.
INSERT INTO preferences AS p (tenant_id, user_id, preferred_locale, channels_json, categories_json, contacts_json,
                              time_zone, quiet_hours_json, updated_at)
VALUES (:tenant_id, :user_id, :preferred_locale, :channels_json::text, jsonb_strip_nulls(:categories_json::jsonb)::text,
    jsonb_strip_nulls(:contacts_json::jsonb)::text, :time_zone, :quiet_hours_json, clock_timestamp())
ON CONFLICT (tenant_id, user_id) DO UPDATE
SET preferred_locale = CASE WHEN :replace::boolean OR :has_locale::boolean THEN :preferred_locale
                            ELSE p.preferred_locale END,
    channels_json = CASE WHEN :replace THEN :channels_json
                         ELSE (p.channels_json::jsonb || :channels_json::jsonb)::text END,
    categories_json = CASE WHEN :replace THEN jsonb_strip_nulls(:categories_json::jsonb)::text
                           ELSE (SELECT jsonb_strip_nulls(p.categories_json::jsonb || coalesce(jsonb_object_agg(
                                            said.key, coalesce(p.categories_json::jsonb -> said.key, '{}') || said.value),
                                            '{}'))::text
                                 FROM jsonb_each(:categories_json::jsonb) AS said) END,
    contacts_json = CASE WHEN :replace THEN jsonb_strip_nulls(:contacts_json::jsonb)::text
                         ELSE jsonb_strip_nulls(p.contacts_json::jsonb || :contacts_json::jsonb)::text END,
    time_zone = CASE WHEN :replace OR :has_time_zone::boolean THEN :time_zone ELSE p.time_zone END,
    quiet_hours_json = CASE WHEN :replace OR :has_quiet_hours::boolean THEN :quiet_hours_json
                            ELSE p.quiet_hours_json END,
    updated_at = clock_timestamp()
RETURNING *;

-- name: category_choices
-- How many people have switched a category on or off, channel by channel, among at most so many people.
WITH people AS MATERIALIZED (
    SELECT p.categories_json::json AS chosen FROM preferences p
    WHERE :tenant_id::text IS NULL OR p.tenant_id = :tenant_id LIMIT :limit
)
SELECT category.key AS category, channel.key AS channel, count(*) FILTER (WHERE channel.value = 'true') AS wanted,
       count(*) FILTER (WHERE channel.value = 'false') AS unwanted, (SELECT count(*) FROM people) AS people
FROM (VALUES (1)) AS always (row)
LEFT JOIN people ON TRUE
LEFT JOIN LATERAL json_each(people.chosen) AS category ON TRUE
LEFT JOIN LATERAL json_each_text(category.value) AS channel ON TRUE
GROUP BY category.key, channel.key;
