// Draws /openapi.json as a page on which every operation can be tried.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
const show = (id) => document.getElementById(id);

function anchor(operation) {
  return `op-${operation.operationId}`;
}

function operationsOf(spec) {
  return Object.entries(spec.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })));
}

function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

class Trial {
  // The form of one operation: its inputs, its curl line, its answer.
  constructor(operation) {
    this.operation = operation;
    this.inputs = new Map();
    this.curl = make("code");
    this.answer = make("div", { class: "answer", hidden: true, "aria-live": "polite" });
    const content = operation.requestBody?.content?.["application/json"];
    if (content) {
      const example = Object.values(content.examples || {})[0]?.value ?? {};
      this.body = make("textarea", { spellcheck: false, "aria-label": "Request body", oninput: () => this.refresh() });
      this.body.value = JSON.stringify(example, null, 2);
    }
  }

  input(parameter) {
    const field = make("input", { "aria-label": parameter.name, oninput: () => this.refresh() });
    field.placeholder = parameter.schema.default ?? parameter.example ?? "";
    if (parameter.in === "path") field.value = parameter.example ?? "";
    this.inputs.set(parameter, field);
    return field;
  }

  request() {
    let path = this.operation.path;
    const query = new URLSearchParams();
    const headers = {};
    for (const [parameter, field] of this.inputs) {
      if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(field.value.replaceAll("/", "%2F")));
      else if (field.value && parameter.in === "query") query.set(parameter.name, field.value);
      else if (field.value) headers[parameter.name] = field.value;
    }
    if (this.body) headers["Content-Type"] = "application/json";
    const token = show("token").value;
    if (token) headers.Authorization = `Bearer ${token}`;
    const tail = query.toString();
    return { url: location.origin + path + (tail ? `?${tail}` : ""), headers };
  }

  refresh() {
    const { url, headers } = this.request();
    const lines = [`curl -X ${this.operation.method.toUpperCase()} ${quote(url)}`];
    for (const [name, value] of Object.entries(headers)) {
      // The token stays out of what people copy around.
      lines.push(`-H ${quote(`${name}: ${name === "Authorization" ? "Bearer $TOKEN" : value}`)}`);
    }
    if (this.body) lines.push(`-d ${quote(this.body.value)}`);
    this.curl.textContent = lines.join(" \\\n  ");
  }

  async send() {
    const { url, headers } = this.request();
    const began = performance.now();
    this.answer.hidden = false;
    try {
      const method = this.operation.method.toUpperCase();
      const response = await fetch(url, { method, headers, body: this.body?.value });
      const text = await response.text();
      const took = Math.round(performance.now() - began);
      const known = ["content-type", "location", "idempotent-replayed", "retry-after", "x-correlation-id"];
      const lines = known.filter((name) => response.headers.has(name)).map((name) => `${name}: ${response.headers.get(name)}`);
      this.answer.replaceChildren(
        make("p", {}, make("strong", {}, `${response.status} ${response.statusText}`), ` in ${took} ms`),
        make("pre", {}, make("code", {}, `${lines.join("\n")}\n\n${pretty(text)}`)));
    } catch (error) {
      this.answer.replaceChildren(make("p", {}, `No answer: ${error.message}`));
    }
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function parameterTable(trial, parameters) {
  const rows = parameters.map((parameter) => make("tr", {},
    make("td", {}, make("code", {}, parameter.name), " ", parameter.required ? make("span", { class: "needed" }, "required") : ""),
    make("td", {}, parameter.in),
    make("td", {}, ...prose(parameter.description || ""), make("div", { class: "kind" }, kindOf(parameter.schema))),
    make("td", {}, trial.input(parameter))));
  const head = ["Name", "In", "Meaning", "Try with"].map((word) => make("th", { scope: "col" }, word));
  return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

function responseTable(spec, responses) {
  const rows = Object.entries(responses).map(([status, response]) => {
    const [media, content] = Object.entries(response.content || {})[0] || ["", null];
    const name = content ? nameOf(content.schema) || kindOf(content.schema) : "";
    const link = content && nameOf(content.schema) ? make("a", { href: `#schema-${name}` }, name) : name;
    return make("tr", {}, make("td", {}, make("code", {}, status)), make("td", {}, ...prose(response.description)),
      make("td", {}, link, make("div", { class: "kind" }, media)));
  });
  return make("table", {}, make("tbody", {}, ...rows));
}

function drawOperation(spec, operation) {
  const trial = new Trial(operation);
  const inside = make("div", { class: "inside" });
  if (operation.description) inside.append(make("p", {}, ...prose(operation.description)));
  if (operation.parameters) inside.append(make("h3", {}, "Parameters"), parameterTable(trial, operation.parameters));
  if (trial.body) {
    const schema = operation.requestBody.content["application/json"].schema;
    inside.append(make("h3", {}, "Body"), fields(spec, schema, [nameOf(schema)]), trial.body);
  }
  const copy = make("button", { class: "plain", type: "button", onclick: () => navigator.clipboard?.writeText(trial.curl.textContent) }, "Copy");
  const send = make("button", { type: "button", onclick: () => trial.send() }, "Send");
  inside.append(make("h3", {}, "Try it"), make("pre", {}, trial.curl), make("div", { class: "row" }, send, copy), trial.answer,
    make("h3", {}, "Answers"), responseTable(spec, operation.responses));
  trial.refresh();
  const summary = make("summary", {}, make("span", { class: `method ${operation.method}` }, operation.method.toUpperCase()),
    make("code", {}, operation.path), make("span", {}, operation.summary));
  return make("details", { class: "operation", id: anchor(operation) }, summary, inside);
}

function drawContents(operations) {
  return [...group(operations)].flatMap(([tag, members]) => [make("h2", {}, tag), ...members.map((operation) =>
    make("a", { href: `#${anchor(operation)}`, title: operation.path }, make("span", { class: `method ${operation.method}` }, operation.method.toUpperCase()), ` ${operation.summary}`))]);
}

function group(operations) {
  const groups = new Map();
  for (const operation of operations) groups.set(operation.tags[0], [...(groups.get(operation.tags[0]) || []), operation]);
  return groups;
}

function drawSchemas(spec) {
  return Object.entries(spec.components.schemas).sort().map(([name, schema]) =>
    make("details", { class: "operation", id: `schema-${name}` }, make("summary", {}, make("code", {}, name), make("span", {}, schema.description || "")),
      make("div", { class: "inside" }, fields(spec, schema, [name]))));
}

function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (!target) return;
  target.open = true;
  target.scrollIntoView();
}

function filter() {
  const wanted = show("filter").value.trim().toLowerCase();
  for (const block of document.querySelectorAll("details.operation")) {
    block.hidden = !block.querySelector("summary").textContent.toLowerCase().includes(wanted);
  }
}

async function start() {
  const token = show("token").value;
  const response = await fetch("/openapi.json", token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  if (response.status === 401) {
    show("token-field").hidden = false;
    show("operations").replaceChildren(make("p", {}, "This program asks for tokens: enter one above to see what it offers."));
    return;
  }
  draw(await response.json());
}

function draw(spec) {
  const operations = operationsOf(spec);
  document.title = `${spec.info.title}: HTTP API`;
  show("title").replaceChildren(spec.info.title, " ", make("small", {}, spec.info.version));
  show("about").textContent = spec.info.description;
  show("token-field").hidden = !spec.components.securitySchemes;
  show("contents").replaceChildren(...drawContents(operations));
  const tags = [...new Set(operations.map((operation) => operation.tags[0]))];
  show("operations").replaceChildren(...tags.flatMap((tag) => [make("h2", {}, tag),
    ...operations.filter((operation) => operation.tags[0] === tag).map((operation) => drawOperation(spec, operation))]),
    make("h2", {}, "Schemas"), ...drawSchemas(spec));
  openTarget();
}

function begin() {
  start().catch((error) => {
    show("operations").replaceChildren(make("p", {}, `The document could not be read: ${error.message}`));
  });
}

show("filter").addEventListener("input", filter);
show("token").addEventListener("change", begin);
window.addEventListener("hashchange", openTarget);
begin();
