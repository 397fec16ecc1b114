// What a person wants: a line for each category, a box for each of its channels.

import { element } from "./view.js";

/**
 * The form; a box is put back if its change is refused.
 * @param {{channels: string[], categories: object[]}} found
 * @param {Object<string, string>} words
 * @param {(change: object) => Promise<any>} choose
 * @param {() => void} refused
 */
export function choices(found, words, choose, refused) {
  const rows = found.categories.map((row) => category(row, found.channels, words, choose, refused));
  return element("form", { class: "choices", part: "choices" }, element("p", { text: rows.length ? words.settingsText : words.noChoice }), ...rows);
}

function category(row, channels, words, choose, refused) {
  const made = element("fieldset", { part: "category", "data-category": row.name }, element("legend", { text: row.title }), element("p", { text: row.text }));
  if (row.required) made.append(element("p", { class: "always", text: words.always }));
  else made.append(element("div", { class: "ways" }, ...channels.map((channel) => way(row, channel, words, choose, refused))));
  return made;
}

function way(row, channel, words, choose, refused) {
  const box = element("input", { type: "checkbox", checked: row.ways[channel], "data-channel": channel });
  box.addEventListener("change", () => {
    choose({ [row.name]: { [channel]: box.checked } }).catch(() => {
      box.checked = !box.checked;
      refused();
    });
  });
  return element("label", { class: "way", part: "choice" }, box, element("span", { text: words[channel] ?? channel }));
}
