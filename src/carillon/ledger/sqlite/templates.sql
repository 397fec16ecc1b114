-- Statements of stored templates. A version is written once; only is_active changes, and only from 1 to 0.

-- name: add_template
-- Race: two writers make the next version of one template, or its first one, at the same time.
--   BEGIN IMMEDIATE         the second looks only after the first has committed, and takes the next number.
WITH family AS (
    SELECT min(template_id) AS template_id, coalesce(max(version), 0) + 1 AS version
    FROM templates
    WHERE tenant_id = ?2 AND template_key = ?3 AND channel = ?4 AND locale = ?5
)
INSERT INTO templates (template_id, tenant_id, template_key, channel, locale, version, name, description, subject, body,
                       html, default_variables_json, is_active, created_by, created_at, updated_at)
SELECT coalesce(family.template_id, ?1), ?2, ?3, ?4, ?5, family.version, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?15, ?15
FROM family
WHERE ?14 IS NULL OR family.version = ?14
RETURNING *;

-- name: template
-- The one in use, else the newest; or the one asked for. What is deleted comes last.
SELECT * FROM templates
WHERE template_id = ?1 AND (?2 IS NULL OR version = ?2)
ORDER BY deleted_at IS NOT NULL, is_active DESC, version DESC
LIMIT 1;

-- name: template_history
SELECT * FROM templates WHERE template_id = ?1 ORDER BY version DESC;

-- name: list_templates
-- One snapshot for the page and the total: a list never says less than it shows.
WITH ranked AS (
    SELECT t.*, row_number() OVER (PARTITION BY t.template_id ORDER BY t.is_active DESC, t.version DESC) AS place
    FROM templates t
    WHERE (?1 IS NULL OR t.tenant_id IN (?1, ''))
      AND (?2 IS NULL OR t.template_key = ?2)
      AND (?3 IS NULL OR t.channel = ?3)
      AND (?4 IS NULL OR t.locale = ?4)
), matching AS MATERIALIZED (
    SELECT * FROM ranked WHERE place = 1 AND (?5 IS NULL OR is_active = ?5)
), page AS (
    SELECT * FROM matching ORDER BY template_key, channel, locale, tenant_id LIMIT ?6 OFFSET ?7
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.template_key, page.channel, page.locale, page.tenant_id;

-- name: retire_template
-- Race: a new version is written meanwhile. One of the two commits first, and the other sees what it did.
UPDATE templates
SET is_active = 0, updated_at = ?3, deleted_at = CASE WHEN ?2 THEN ?3 ELSE deleted_at END
WHERE template_id = ?1 AND (is_active OR (?2 AND deleted_at IS NULL));

-- name: current_templates
WITH ranked AS (
    SELECT t.*, row_number() OVER (PARTITION BY t.template_id ORDER BY t.version DESC) AS place
    FROM json_each(?1) AS asked
    JOIN templates t
      ON t.tenant_id = json_extract(asked.value, '$[0]') AND t.template_key = json_extract(asked.value, '$[1]')
    WHERE t.is_active
)
SELECT * FROM ranked WHERE place = 1 ORDER BY tenant_id, template_key, channel, locale;

-- name: template_revision
-- Versions are only added and only switched off: no two states of the table have the same two numbers.
SELECT count(*) AS versions, count(*) FILTER (WHERE is_active) AS active FROM templates;

-- name: template_variants
SELECT DISTINCT tenant_id, template_key, channel, locale FROM templates WHERE is_active
ORDER BY tenant_id, template_key, channel, locale;
