/** Export of a list, page by page by its cursor, as CSV or as one JSON object a line. */

import { ask } from "./api.js";
import { toast } from "./dom.js";
import { number } from "./format.js";

const PAGE = 200;
const MOST = 50_000;

/**
 * @param {"csv"|"ndjson"} format
 * @param {string} path
 * @param {object} query
 * @param {Object<string, (item: object) => any>} columns of the CSV
 */
export async function download(format, path, query, columns) {
  const lines = format === "csv" ? [Object.keys(columns).map(cell).join(",")] : [];
  let cursor;
  let count = 0;
  do {
    const page = await ask(path, { query: { ...query, cursor, pageSize: PAGE, count: cursor ? undefined : "capped" } });
    for (const item of page.items) lines.push(format === "csv" ? Object.values(columns).map((of) => cell(of(item))).join(",") : JSON.stringify(item));
    count += page.items.length;
    cursor = page.nextCursor;
  } while (cursor && count < MOST);
  const kind = format === "csv" ? "text/csv" : "application/x-ndjson";
  const url = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: kind }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: `${path.split("/").pop()}.${format}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  toast(cursor ? `The newest ${number(count)} are exported; narrow the search for the rest.` : `${number(count)} exported.`);
}

/** One cell; a text that a spreadsheet would run as a formula begins with an apostrophe. */
function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && !/^\+?\d+$/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
