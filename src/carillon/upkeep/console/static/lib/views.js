/** Saved views: a name for filters, kept in this browser. */

import { confirm } from "./dialog.js";
import { h, toast } from "./dom.js";
import { field } from "./forms.js";

/**
 * Chips of the saved views of a page, and the one that saves what is shown.
 * @param {string} page
 * @param {Object<string, string>} now the filters in the address
 * @param {(query: Object<string, string>) => void} open
 * @param {() => void} changed
 */
export function views(page, now, open, changed) {
  const kept = read(page);
  const same = (query) => JSON.stringify(sorted(query)) === JSON.stringify(sorted(now));
  const known = Object.entries(kept).map(([name, query]) => h("span", { class: "chips" },
    h("button", { type: "button", class: "chip", id: `view-${name}`, "aria-pressed": String(same(query)), text: name, onclick: () => open(query) }),
    same(query) ? h("button", { type: "button", class: "ghost small", "aria-label": `Forget the view ${name}`, text: "✕", onclick: () => {
      const { [name]: _, ...rest } = read(page);
      write(page, rest);
      changed();
    } }) : null));
  const savable = Object.keys(now).length && !Object.values(kept).some(same);
  const save = savable ? h("button", { type: "button", class: "ghost small", id: "save-view", text: "Save view", onclick: async () => {
    const given = await confirm({ title: "Save this view", text: "The filters are kept in this browser, under a name.", act: "Save", fields: [field("view", "Name", { required: true, maxlength: 40 })] });
    if (!given) return;
    write(page, { ...read(page), [given.view]: now });
    toast(`Saved as ${given.view}.`);
    changed();
  } }) : null;
  return known.length || save ? h("div", { class: "chips", "aria-label": "Saved views", role: "group" }, known, save) : null;
}

function sorted(query) {
  return Object.entries(query).sort(([one], [other]) => (one < other ? -1 : 1));
}

function read(page) {
  try {
    return JSON.parse(localStorage.getItem(`carillon.views.${page}`) ?? "{}");
  } catch {
    return {};
  }
}

function write(page, kept) {
  localStorage.setItem(`carillon.views.${page}`, JSON.stringify(kept));
}
