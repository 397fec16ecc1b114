/** Drafts: what is written and not published stays in this browser, one draft for each template and language. */

const PREFIX = "carillon.draft ";
const KEPT_DAYS = 60;

/** @param {{key: string, channel: string, locale: string, tenant?: string}} state */
function nameOf(state) {
  return PREFIX + JSON.stringify([state.tenant ?? "", state.key, state.channel, state.locale]);
}

/**
 * Keep a draft; false if the browser cannot keep it.
 * @param {object} state
 * @param {object} content what is written
 * @param {number|null} base the version that the draft began with
 */
export function keep(state, content, base) {
  try {
    localStorage.setItem(nameOf(state), JSON.stringify({ content, base, at: Date.now() }));
    return true;
  } catch {
    return false;
  }
}

/** The draft of a template, or null. */
export function kept(state) {
  try {
    const found = JSON.parse(localStorage.getItem(nameOf(state)));
    return found && typeof found.content === "object" ? found : null;
  } catch {
    return null;
  }
}

export function drop(state) {
  localStorage.removeItem(nameOf(state));
}

/**
 * Every template with a draft, as `["tenant", "key", "channel", "locale"]`; drafts that are too old are deleted.
 * @returns {string[][]}
 */
export function all() {
  const found = [];
  const oldest = Date.now() - KEPT_DAYS * 86_400_000;
  for (const name of Object.keys(localStorage).filter((one) => one.startsWith(PREFIX))) {
    try {
      if (JSON.parse(localStorage.getItem(name)).at < oldest) localStorage.removeItem(name);
      else found.push(JSON.parse(name.slice(PREFIX.length)));
    } catch {
      localStorage.removeItem(name);
    }
  }
  return found;
}
