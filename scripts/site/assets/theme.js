// Light or dark, before anything is painted; the switch and the menu once the page is there.
(() => {
  const root = document.documentElement;
  const KEY = "carillon-docs-theme";
  const wanted = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // A page opened from a file may have no storage.
    }
  };
  if (wanted()) root.dataset.theme = wanted();

  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      const now = root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
      root.dataset.theme = now === "dark" ? "light" : "dark";
      try {
        localStorage.setItem(KEY, root.dataset.theme);
      } catch {
        // The choice lasts as long as the page.
      }
    });
    const side = document.getElementById("side");
    const menu = document.getElementById("menu");
    menu.addEventListener("click", () => menu.setAttribute("aria-expanded", String(side.classList.toggle("open"))));
    document.querySelector("#nav [aria-current]")?.scrollIntoView({ block: "nearest" });
    for (const code of document.querySelectorAll("article pre")) copyable(code);
  });

  function copyable(code) {
    if (!navigator.clipboard) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(commands(code.textContent));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    const place = document.createElement("div");
    place.className = "code";
    code.replaceWith(place);
    place.append(code, button);
  }

  /** Of a terminal's text only what one types: the commands, with the lines that they go on over. */
  function commands(text) {
    if (!/^\$ /m.test(text)) return text;
    const kept = [];
    let open = false;
    for (const line of text.split("\n")) {
      if (line.startsWith("$ ")) kept.push(line.slice(2));
      else if (open) kept.push(line);
      else continue;
      const command = kept[kept.length - 1];
      const quotes = (command.match(/'/g) ?? []).length % 2 === 1;
      open = command.endsWith("\\") || (open ? !quotes : quotes);
    }
    return kept.join("\n") + "\n";
  }
})();
