-- Statements of stored templates. A version is written once; only is_active changes, and only from true to false.

-- name: add_template
-- Race: two writers make the next version of one template, or its first one, at the same time.
--   templates_version       the second waits for the first, finds the number taken, writes nothing and asks again.
WITH family AS (
    SELECT min(template_id) AS template_id, coalesce(max(version), 0) + 1 AS version
    FROM templates
    WHERE tenant_id = :tenant_id AND template_key = :template_key AND channel = :channel AND locale = :locale
)
INSERT INTO templates (template_id, tenant_id, template_key, channel, locale, version, name, description, subject, body,
                       html, default_variables_json, engine, kind, mjml, layout, sample_json, fields_json, is_active, created_by,
                       created_at, updated_at, category)
SELECT coalesce(family.template_id, :template_id), :tenant_id, :template_key, :channel, :locale, family.version,
    :name, :description, :subject, :body, :html, :default_variables_json, :engine, :kind, :mjml, :layout, :sample_json,
    :fields_json,
    :is_active, :created_by,
       clock_timestamp(), clock_timestamp(), :category
FROM family
WHERE :version::integer IS NULL OR family.version = :version
ON CONFLICT DO NOTHING
RETURNING *;

-- name: template
-- The one in use, else the newest; or the one asked for. What is deleted comes last.
SELECT * FROM templates
WHERE template_id = :template_id AND (:version::integer IS NULL OR version = :version)
ORDER BY deleted_at IS NOT NULL, is_active DESC, version DESC
LIMIT 1;

-- name: template_history
SELECT * FROM templates WHERE template_id = :template_id ORDER BY version DESC;

-- name: list_templates
-- One snapshot for the page and the total, so that they agree.
WITH ranked AS (
    SELECT t.*, row_number() OVER (PARTITION BY t.template_id ORDER BY t.is_active DESC, t.version DESC) AS place
    FROM templates t
    WHERE (:tenant_id::text IS NULL OR t.tenant_id IN (:tenant_id, ''))
      AND (:template_key::text IS NULL OR t.template_key = :template_key)
      AND (:channel::text IS NULL OR t.channel = :channel)
      AND (:locale::text IS NULL OR t.locale = :locale)
), matching AS MATERIALIZED (
    SELECT * FROM ranked WHERE place = 1 AND (:is_active::boolean IS NULL OR is_active = :is_active)
), page AS (
    SELECT * FROM matching
    WHERE :after_key::text IS NULL OR (template_key, channel, locale, tenant_id)
        > (:after_key, :after_channel::text, :after_locale::text, :after_tenant::text)
    ORDER BY template_key, channel, locale, tenant_id LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (VALUES (1)) AS always (row)
LEFT JOIN page ON TRUE
ORDER BY page.template_key, page.channel, page.locale, page.tenant_id;

-- name: retire_template
-- Race: a new version is written meanwhile. It is not seen here and stays in use, as if it had come a moment later.
UPDATE templates
SET is_active = FALSE, updated_at = clock_timestamp(),
    deleted_at = CASE WHEN :delete::boolean THEN clock_timestamp() ELSE deleted_at END
WHERE template_id = :template_id AND (is_active OR (:delete AND deleted_at IS NULL))
RETURNING version;

-- name: current_templates
SELECT DISTINCT ON (t.tenant_id, t.template_key, t.channel, t.locale) t.*
FROM unnest(:tenant_id::text[], :template_key::text[]) AS asked (tenant_id, template_key)
JOIN templates t ON t.tenant_id = asked.tenant_id AND t.template_key = asked.template_key
WHERE t.is_active
ORDER BY t.tenant_id, t.template_key, t.channel, t.locale, t.version DESC;

-- name: template_revision
-- Versions are only added and only switched off: no two states of the table have the same two numbers.
SELECT count(*) AS versions, count(*) FILTER (WHERE is_active) AS active FROM templates;

-- name: template_variants
-- Layouts, partials and catalogues serve other locales too: only messages can lack a language.
SELECT DISTINCT tenant_id, template_key, channel, locale FROM templates WHERE is_active AND kind = 'message'
ORDER BY tenant_id, template_key, channel, locale;
