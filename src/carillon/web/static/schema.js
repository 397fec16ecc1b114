// Draws JSON schemas as nested lists; everything is built from text nodes, so a document cannot inject markup.
"use strict";

function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") element.className = value;
    else if (key in element) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// What stands between backticks is code.
function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

function resolve(spec, schema) {
  if (!schema || !schema.$ref) return schema || {};
  return spec.components.schemas[schema.$ref.split("/").pop()];
}

function nameOf(schema) {
  return schema && schema.$ref ? schema.$ref.split("/").pop() : null;
}

// One line that says what a value may be: "string · 1–200 characters · ^[a-z]+$".
function kindOf(schema) {
  if (!schema) return "anything";
  if (schema.$ref) return nameOf(schema);
  if (schema.anyOf) return schema.anyOf.map(kindOf).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return `list of ${kindOf(schema.items)}${range(schema.minItems, schema.maxItems, " items")}`;
  if (schema.type === "object" && schema.additionalProperties) return "object";
  let words = schema.format ? `${schema.type} (${schema.format})` : schema.type || "anything";
  words += range(schema.minimum, schema.maximum, "") + range(schema.minLength, schema.maxLength, " characters");
  if (schema.pattern) words += ` · ${schema.pattern}`;
  return words;
}

function range(low, high, unit) {
  if (low === undefined && high === undefined) return "";
  return ` · ${low ?? 0}–${high ?? "…"}${unit}`;
}

function parts(schema) {
  if (!schema) return [];
  if (schema.$ref) return [schema];
  if (schema.anyOf) return schema.anyOf.flatMap(parts);
  if (schema.type === "array") return parts(schema.items);
  return schema.properties ? [schema] : [];
}

// The fields of a schema, with those of the schemas that it refers to; `seen` ends a circle.
function fields(spec, schema, seen = []) {
  const own = resolve(spec, schema);
  const needed = own.required || [];
  const items = Object.entries(own.properties || {}).map(([name, inner]) => {
    const item = make("li", {}, make("code", {}, name), " ", make("span", { class: "kind" }, kindOf(inner)));
    if (needed.includes(name)) item.append(" ", make("span", { class: "needed" }, "required"));
    if (inner.default !== undefined && inner.default !== null) item.append(make("span", { class: "kind" }, ` = ${JSON.stringify(inner.default)}`));
    const meaning = inner.description || inner.anyOf?.find((part) => part.description)?.description;
    if (meaning) item.append(make("div", {}, ...prose(meaning)));
    for (const part of parts(inner)) {
      const label = nameOf(part);
      if (!seen.includes(label)) item.append(fields(spec, part, [...seen, label]));
    }
    return item;
  });
  return make("ul", { class: "fields" }, ...items);
}
