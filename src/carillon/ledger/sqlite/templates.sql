-- Statements of stored templates. A version is written once; only is_active changes, and only from 1 to 0.

-- name: add_template
-- Race: two writers make the next version of one template, or its first one, at the same time.
--   BEGIN IMMEDIATE         the second looks only after the first has committed, and takes the next number.
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
    :is_active, :created_by, :now, :now, :category
FROM family
WHERE :version IS NULL OR family.version = :version
RETURNING *;

-- name: template
-- The one in use, else the newest; or the one asked for. What is deleted comes last.
SELECT * FROM templates
WHERE template_id = :template_id AND (:version IS NULL OR version = :version)
ORDER BY deleted_at IS NOT NULL, is_active DESC, version DESC
LIMIT 1;

-- name: template_history
SELECT * FROM templates WHERE template_id = :template_id ORDER BY version DESC;

-- name: list_templates
-- One snapshot for the page and the total, so that they agree.
WITH ranked AS (
    SELECT t.*, row_number() OVER (PARTITION BY t.template_id ORDER BY t.is_active DESC, t.version DESC) AS place
    FROM templates t
    WHERE (:tenant_id IS NULL OR t.tenant_id IN (:tenant_id, ''))
      AND (:template_key IS NULL OR t.template_key = :template_key)
      AND (:channel IS NULL OR t.channel = :channel)
      AND (:locale IS NULL OR t.locale = :locale)
), matching AS MATERIALIZED (
    SELECT * FROM ranked WHERE place = 1 AND (:is_active IS NULL OR is_active = :is_active)
), page AS (
    SELECT * FROM matching
    WHERE :after_key IS NULL OR (template_key, channel, locale, tenant_id)
        > (:after_key, :after_channel, :after_locale, :after_tenant)
    ORDER BY template_key, channel, locale, tenant_id LIMIT :limit OFFSET :offset
)
SELECT (SELECT count(*) FROM matching) AS total, page.*
FROM (SELECT 1) AS always
LEFT JOIN page ON TRUE
ORDER BY page.template_key, page.channel, page.locale, page.tenant_id;

-- name: retire_template
-- Race: a new version is written meanwhile. One of the two commits first, and the other sees what it did.
UPDATE templates
SET is_active = 0, updated_at = :now, deleted_at = CASE WHEN :delete THEN :now ELSE deleted_at END
WHERE template_id = :template_id AND (is_active OR (:delete AND deleted_at IS NULL))
RETURNING version;

-- name: current_templates
WITH ranked AS (
    SELECT t.*, row_number() OVER (PARTITION BY t.template_id ORDER BY t.version DESC) AS place
    FROM templates t
    WHERE t.tenant_id = :tenant_id AND t.template_key = :template_key AND t.is_active
)
SELECT * FROM ranked WHERE place = 1 ORDER BY tenant_id, template_key, channel, locale;

-- name: template_revision
-- Versions are only added and only switched off: no two states of the table have the same two numbers.
SELECT count(*) AS versions, count(*) FILTER (WHERE is_active) AS active FROM templates;

-- name: template_variants
-- Layouts, partials and catalogues serve other locales too: only messages can lack a language.
SELECT DISTINCT tenant_id, template_key, channel, locale FROM templates WHERE is_active AND kind = 'message'
ORDER BY tenant_id, template_key, channel, locale;
