"""The inbox of an application: the ledger holds its messages, and the application reads them over the HTTP API."""

import msgspec

from carillon.domain.claims import Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent
from carillon.providers import Tools

CHANNELS = frozenset({"inApp"})
TELLS = frozenset({"delivered", "read", "acknowledged"})
"""The application that shows the inbox reports over the API."""


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """No options: the application reads `GET /api/v1/notifications?channel=inApp`."""


class InAppInbox:
    """Makes no call: a message in the ledger is delivered."""

    async def send(self, dispatch: Dispatch) -> Outcome:
        if dispatch.message is None:
            return Refused("an inbox needs a rendered message", classification="no_content")
        return Sent(message_id=dispatch.claim.idempotency_key)

    async def aclose(self) -> None:
        """Nothing is open."""


def create(name: str, settings: Settings, tools: Tools) -> InAppInbox:
    del name, settings, tools
    return InAppInbox()
