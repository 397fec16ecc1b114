"""Tickets: what a browser shows in a URL instead of its token, good for one stream and the answers to it."""

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Container
from urllib.parse import unquote

from carillon.domain.live import Ticket, TicketLedger
from carillon.web.auth import Unauthorized
from carillon.web.request import Proof, Request

PREFIX = "st_"
TICKET_BODY = 64 * 1024
"""The longest body that is read of a caller whose ticket may stand in it."""
_NOISE_BYTES = 32
_LONGEST = 100
_NAMED = re.compile(rb"(?:\A|&)ticket=([^&]*)")


class Tickets:
    """Makes tickets, and finds out whose they are; only digests are kept."""

    def __init__(
        self,
        ledger: TicketLedger,
        *,
        seconds: float,
        lifetime_seconds: float,
        revoked: Container[str] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Good for opening within `seconds`, and for what belongs to the stream as long as that may live."""
        self._ledger = ledger
        self.seconds = seconds
        self._lifetime_seconds = lifetime_seconds
        self._revoked = revoked
        self._wall = wall

    async def issue(self, ticket: Ticket) -> str:
        """The text that its holder shows."""
        text = PREFIX + secrets.token_urlsafe(_NOISE_BYTES)
        await self._ledger.add_ticket(_digest(text), ticket, self.seconds)
        return text

    async def find(self, text: str, *, opens: bool) -> Ticket:
        """Whose it is; 401 for one that is unknown, used up or over."""
        found = None
        if text.startswith(PREFIX) and len(text) <= _LONGEST:
            digest = _digest(text)
            if opens:
                found = await self._ledger.open_ticket(digest, self._lifetime_seconds)
            else:
                found = await self._ledger.ticket(digest)
        if found is None:
            raise Unauthorized("unknown")
        self.check(Proof(found.expires_at_ms, found.token_id))
        return found

    def check(self, proof: Proof) -> None:
        """401 when the token is over or taken back that the ticket was given for."""
        if proof.expires_at_ms is not None and self._wall() * 1000 >= proof.expires_at_ms:
            raise Unauthorized("expired")
        if self._revoked is not None and proof.token_id is not None and proof.token_id in self._revoked:
            raise Unauthorized("revoked")


def shown(request: Request) -> str | None:
    """The ticket in a request's head: in its query, or as its bearer token."""
    named = _NAMED.search(request.scope["query_string"])
    if named is not None:
        return unquote(named[1].decode("latin-1"))
    text = (request.header(b"authorization") or "").partition(" ")[2].strip()
    return text if text.startswith(PREFIX) else None


def shown_in_body(request: Request) -> str | None:
    """The ticket in a body that was read."""
    body = request.value()
    told = body.get("ticket") if isinstance(body, dict) else None
    return told if isinstance(told, str) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
