"""The inbox inside the application: a message has arrived once the ledger holds it, and is read from there."""

import msgspec

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent
from carillon.providers import Tools

CHANNELS = frozenset({"inApp"})


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Nothing to say: the application reads `GET /api/v1/notifications?channel=inApp`."""


class Inbox:
    """Calls nobody."""

    async def send(self, dispatch: Dispatch) -> Outcome:
        if dispatch.message is None:
            return Refused("an inbox needs a rendered message", classification="no_content")
        return Sent(message_id=dispatch.claim.idempotency_key)

    async def aclose(self) -> None:
        """There is nothing to give back."""


def create(name: str, settings: Settings, tools: Tools) -> Inbox:
    del name, settings, tools
    return Inbox()
