/** Style sheets of single pages: loaded with the first page that needs them. */

const loaded = new Map();

/**
 * Load a style sheet once; resolves when it applies, so that nothing is drawn without it.
 * @param {string} name a file beside `style.css`
 * @returns {Promise<void>}
 */
export function sheet(name) {
  if (!loaded.has(name)) {
    loaded.set(
      name,
      new Promise((done) => {
        const link = document.createElement("link");
        link.rel = "stylesheet";
        link.href = `/console/${name}`;
        // A page without its own style is still of use.
        link.onload = link.onerror = () => done();
        document.head.append(link);
      }),
    );
  }
  return loaded.get(name);
}
