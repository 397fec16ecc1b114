/** Sample values for the variables of a template, for the preview. */

const KNOWN = {
  name: "Ada Lovelace",
  firstName: "Ada",
  first_name: "Ada",
  lastName: "Lovelace",
  link: "https://example.org/start",
  url: "https://example.org/start",
  email: "ada@example.org",
  phone: "+491701234567",
  code: "482913",
  otp: "482913",
  number: "A-1042",
  amount: "19.90",
  total: "19.90",
  currency: "EUR",
  minutes: "5",
  title: "Bell founder wanted",
  driver: "Grace",
  eta: "12:40",
  date: "12 May",
  time: "12:40",
  city: "Utrecht",
};

/**
 * Values for names such as `order.number`.
 * @param {string[]} names
 * @param {object} [defaults] what the template itself brings along
 */
export function samples(names, defaults = {}) {
  const found = {};
  for (const name of names) {
    const path = name.split(".");
    const last = path.pop();
    if (!path.length && last in defaults) continue;
    let place = found;
    for (const part of path) place = place[part] = typeof place[part] === "object" ? place[part] : {};
    place[last] ??= KNOWN[last] ?? `‹${last}›`;
  }
  return found;
}
