// The page around the component: whose inbox, and a ticket where a token is needed.

import "/inbox/inbox.js";

const form = document.getElementById("who");
const place = document.getElementById("inbox");

async function ticketFor(user, token) {
  const answer = await fetch("/notifications/stream/tickets", {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify({ user_id: user }),
  });
  if (!answer.ok) throw new Error(`no ticket: ${answer.status}`);
  return (await answer.json()).ticket;
}

function open(user, token) {
  const inbox = document.createElement("carillon-inbox");
  inbox.setAttribute("user", user);
  if (token) inbox.ticket = () => ticketFor(user, token);
  place.replaceChildren(inbox);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  open(form.elements.user.value, form.elements.token.value);
});

const named = new URLSearchParams(location.search).get("user");
if (named) {
  form.elements.user.value = named;
  open(named, "");
}
