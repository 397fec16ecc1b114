/** The registry of pages: one line each. The blueprint and the caller's rights decide which of them are shown. */

import { h } from "./dom.js";

/**
 * `page` is the file in pages/ and the first part of the address, `key` opens it after `g`, `icon` is a path of 16 by 16.
 * @type {{page: string, title: string, group: string, key: string, icon: string}[]}
 */
export const PAGES = [
  { page: "overview", title: "Overview", group: "", key: "o", icon: "M2 9h3l2-6 3 10 2-4h2" },
  { page: "notifications", title: "Notifications", group: "", key: "n", icon: "M8 2a4 4 0 0 0-4 4c0 4-1.5 4.5-2 6h12c-.5-1.5-2-2-2-6a4 4 0 0 0-4-4zM6.5 14h3" },
  { page: "dead-letters", title: "Dead letters", group: "", key: "d", icon: "M2 4h12v9H2zM2 4l6 5 6-5M6 13l4-3M10 13l-4-3" },
  { page: "people", title: "People", group: "People and texts", key: "p", icon: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14a5.5 5.5 0 0 1 11 0" },
  { page: "templates", title: "Templates", group: "People and texts", key: "t", icon: "M3 2h7l3 3v9H3zM10 2v3h3M5.5 8h5M5.5 11h5" },
  { page: "providers", title: "Providers", group: "Delivery", key: "v", icon: "M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.01M5.5 11h.01" },
  { page: "endpoints", title: "Endpoints", group: "Delivery", key: "e", icon: "M6.5 9.5a3 3 0 0 0 4.2 0l2-2a3 3 0 0 0-4.2-4.2l-.7.7M9.5 6.5a3 3 0 0 0-4.2 0l-2 2a3 3 0 0 0 4.2 4.2l.7-.7" },
  { page: "queues", title: "Queues", group: "Delivery", key: "q", icon: "M2 4h12M2 8h12M2 12h8" },
  { page: "streams", title: "Streams", group: "Delivery", key: "s", icon: "M3 6a7 7 0 0 1 10 0M5 8.5a4 4 0 0 1 6 0M8 12h.01" },
  { page: "suppressions", title: "Suppressions", group: "Rules", key: "u", icon: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM4 4l8 8" },
  { page: "categories", title: "Categories", group: "Rules", key: "c", icon: "M2 3h5v5H2zM9 3h5v5H9zM2 10h5v4H2zM9 10h5v4H9z" },
  { page: "digests", title: "Digests", group: "Rules", key: "i", icon: "M3 5l5-3 5 3-5 3zM3 8l5 3 5-3M3 11l5 3 5-3" },
  { page: "drills", title: "Drills", group: "Practice", key: "r", icon: "M8 2v4M5 14h6M8 6l5 8H3z" },
  { page: "rehearsal", title: "Rehearsal", group: "Practice", key: "h", icon: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.5l2.5 1.5" },
  { page: "outbox", title: "Outbox", group: "Practice", key: "b", icon: "M2 9l2-6h8l2 6v4H2zM2 9h3.5l1 2h3l1-2H14" },
  { page: "audit", title: "Audit", group: "Records", key: "a", icon: "M4 2h8v12H4zM6.5 5h3M6.5 8h3M6.5 11h2" },
];
const BY_NAME = new Map(PAGES.map((one) => [one.page, one]));

/** The title of a page; an unknown one is called by its name. */
export function titleOf(page) {
  return BY_NAME.get(page)?.title ?? page;
}

/** Those of the registry that the caller may see, in the registry's order; unknown ones last. */
export function shown(names) {
  const known = PAGES.filter((one) => names.includes(one.page));
  const rest = names.filter((name) => !BY_NAME.has(name));
  return [...known, ...rest.map((page) => ({ page, title: page, group: "More", key: "", icon: "M3 8h10" }))];
}

/** The address of one person: the same id is somebody else in another tenant. */
export function whereIs(id, tenant) {
  return `#/people/${encodeURIComponent(id)}${tenant ? `?tenant=${encodeURIComponent(tenant)}` : ""}`;
}

/** The links of the navigation, group by group. */
export function links(names) {
  let group = "";
  return shown(names).map((one) => {
    const begins = one.group !== group;
    group = one.group;
    return [
      begins ? h("p", { class: "group", text: one.group }) : null,
      h("a", { href: `#/${one.page}`, data: { page: one.page } }, icon(one.icon), one.title),
    ];
  });
}

/** A drawing of 16 by 16, for decoration. */
export function icon(path) {
  return h("svg:svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, h("svg:path", { d: path }));
}
