// Search over the index that mkdocs writes: whole words count more than beginnings, titles more than text.
(() => {
  const here = document.currentScript;
  const [INDEX, ROOT] = [here.dataset.index, here.dataset.root];
  const MOST = 12;
  let pages = null;

  async function load() {
    pages ??= fetch(INDEX)
      .then((answer) => answer.json())
      .then((read) => read.docs.map(known));
    return pages;
  }

  function known(doc) {
    const text = doc.text.replace(/\s*¶/g, "");
    return { ...doc, text, low: text.toLowerCase(), name: doc.title.toLowerCase() };
  }

  function score(doc, words) {
    let sum = 0;
    for (const word of words) {
      const inTitle = doc.name.includes(word);
      const at = doc.low.indexOf(word);
      if (!inTitle && at < 0) return 0;
      sum += (inTitle ? 10 : 0) + (doc.name === word ? 20 : 0) + (at >= 0 ? 1 + 1 / (1 + at / 400) : 0);
    }
    return doc.location.includes("#") ? sum : sum + 1;
  }

  function excerpt(doc, words) {
    const at = Math.max(0, doc.low.indexOf(words[0]));
    const from = Math.max(0, at - 40);
    return (from ? "…" : "") + doc.text.slice(from, from + 130).replace(/\s+/g, " ");
  }

  document.addEventListener("DOMContentLoaded", () => {
    const query = document.getElementById("query");
    const found = document.getElementById("found");
    const close = () => {
      found.replaceChildren();
      found.hidden = true;
    };

    query.addEventListener("input", async () => {
      const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
      if (!words.length) return close();
      const asked = query.value;
      const all = await load();
      if (query.value !== asked) return;
      const best = all
        .map((doc) => [score(doc, words), doc])
        .filter(([sum]) => sum > 0)
        .sort(([one], [two]) => two - one)
        .slice(0, MOST);
      found.replaceChildren(...best.map(([, doc]) => entry(doc, words)));
      if (!best.length) found.append(Object.assign(document.createElement("li"), { textContent: "Nothing found" }));
      found.hidden = false;
    });
    document.addEventListener("keydown", (event) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
      if (event.key === "/" && !typing) {
        event.preventDefault();
        query.focus();
      } else if (event.key === "Escape") {
        close();
      } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !found.hidden) {
        const links = [...found.querySelectorAll("a")];
        const at = links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
        event.preventDefault();
        (links[at] ?? query).focus();
      }
    });
  });

  function entry(doc, words) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `${ROOT.replace(/\/?$/, "/")}${doc.location}`;
    const title = document.createElement("b");
    title.textContent = doc.title;
    const text = document.createElement("span");
    text.textContent = excerpt(doc, words);
    link.append(title, text);
    item.append(link);
    return item;
  }
})();
