/** HTML of a message in a frame without scripts, forms and foreign pictures: its sender is not trusted. */

import { h } from "./dom.js";

const PAGE = "/console/frame.html";
const LEAST = 80;

/**
 * A frame that shows HTML as a mail program does. The page inside has a policy of its own: styles are allowed, scripts,
 * requests and pictures from elsewhere are not; the sandbox forbids scripts a second time.
 * @param {string} label
 * @returns {{element: HTMLIFrameElement, show: (html: string, look?: {dark?: boolean}) => void}}
 */
export function frame(label) {
  const element = h("iframe", { class: "letter-frame", title: label, sandbox: "allow-same-origin", src: PAGE, loading: "eager" });
  let wanted = null;
  let ready = false;
  const draw = () => {
    const page = element.contentDocument;
    if (!ready || wanted === null || !page) return;
    element.style.colorScheme = wanted.dark ? "dark" : "light";
    page.documentElement.innerHTML = wanted.html;
    for (const one of page.styleSheets) schemes(one.cssRules, wanted.dark);
    fit(element);
    for (const picture of page.images) picture.addEventListener("load", () => fit(element));
  };
  element.addEventListener("load", () => {
    ready = true;
    draw();
  });
  // A narrower frame has a longer page.
  let width = 0;
  new ResizeObserver(([seen]) => {
    if (seen.contentRect.width === width) return;
    width = seen.contentRect.width;
    fit(element);
  }).observe(element);
  return {
    element,
    show(html, look = {}) {
      wanted = { html, dark: Boolean(look.dark) };
      draw();
    },
  };
}

/** Rules for dark and light follow the switch of the preview, not the browser. */
function schemes(rules, dark) {
  for (const rule of rules) {
    if (!rule.media || !rule.cssRules) continue;
    const asked = /prefers-color-scheme:\s*(dark|light)/.exec(rule.media.mediaText);
    if (asked) rule.media.mediaText = (asked[1] === "dark") === dark ? "all" : "not all";
  }
}

function fit(element) {
  const page = element.contentDocument;
  if (!page?.body) return;
  element.style.height = "0";
  element.style.height = `${Math.max(page.documentElement.scrollHeight, LEAST)}px`;
}
