"""The inbox of an application: a message goes to its person's log, and from there to every window that is open."""

from collections.abc import Sequence

import msgspec

from carillon.coalesce import Coalescer
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.errors import LedgerUnavailable, Overloaded
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled
from carillon.domain.streams import log_of_claim, person_of
from carillon.live.sse import AT_ONCE, MOST_WAITING, Live
from carillon.providers.tools import Tools

KIND = "inbox"
CHANNELS = frozenset({"inApp"})
TELLS = frozenset({"delivered", "read", "acknowledged"})
"""The application that shows the inbox reports over the API."""


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """No options: people read their inbox at `/notifications/{user_id}`."""


class InboxProvider:
    """Delivered means that the message is in the person's log; whether anybody reads at the moment does not matter."""

    def __init__(self, live: Live | None) -> None:
        """Without `live` the process has no logs: the message stays in the ledger, and the API shows it."""
        self._live = live
        self._placing: Coalescer[Claim, None] = Coalescer(self._place, max_batch=AT_ONCE, max_pending=MOST_WAITING)

    async def send(self, dispatch: Dispatch) -> Outcome:
        if dispatch.message is None:
            return Refused("an inbox needs a rendered message", classification="no_content")
        if person_of(log_of_claim(dispatch.claim))[0] != dispatch.claim.tenant_id:
            return Refused("no user id holds the character that separates it from the tenant", "invalid_recipient")
        if self._live is not None:
            try:
                await self._placing.add(dispatch.claim)
            except (LedgerUnavailable, Overloaded) as error:
                # Nothing was written, so this is not a failed attempt.
                return Throttled(f"the inbox could not be written: {error}", retry_after=1.0)
        return Sent(message_id=dispatch.claim.idempotency_key)

    async def aclose(self) -> None:
        """The hub owns the connections."""

    async def _place(self, claims: Sequence[Claim]) -> list[None]:
        """Append the messages in one commit, and wake those who read them, here and at other replicas."""
        live = self._live
        if live is not None:
            entries = await live.ledger.append(claims)
            live.hub.offer(entries)
            others = await live.elsewhere({entry.user_id for entry in entries})
            if live.relay is not None:
                live.relay.announce([(entry, others[entry.user_id]) for entry in entries if entry.user_id in others])
        return [None] * len(claims)


def create(name: str, settings: Settings, tools: Tools) -> InboxProvider:
    del name, settings
    return InboxProvider(tools.live if isinstance(tools.live, Live) else None)
