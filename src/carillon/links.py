"""Links to a person's own page: encrypted, authenticated and expiring, and the same for the same content."""

import base64
import hmac
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from carillon.domain.claims import Claim
from carillon.domain.consent import Categories, person_of
from carillon.domain.errors import ConfigurationError

SHORTEST_KEY = 32
LONGEST_TOKEN = 1200
"""Characters of the longest token: a person's id has at most 255 characters of up to four bytes."""
_PATH = "/u/"


class Link(msgspec.Struct, frozen=True, array_like=True):
    """What a link stands for: whose page it opens, until when, and what one click there leaves."""

    tenant_id: str
    person: str
    until: int
    """Unix seconds."""
    category: str = ""
    channel: str = ""


class Links:
    """Makes and reads links; the first key makes them, all keys read them."""

    def __init__(
        self, keys: Sequence[str], url: str | None, *, link_seconds: float, unsubscribe_seconds: float
    ) -> None:
        if any(len(key) < SHORTEST_KEY for key in keys):
            raise ConfigurationError(
                f"consent.keys: a key has at least {SHORTEST_KEY} characters: openssl rand -hex 32"
            )
        self._ciphers = [AESSIV(hmac.digest(key.encode(), b"carillon/links", "sha512")) for key in keys]
        self._url = None if url is None else url.rstrip("/")
        self._link_seconds = link_seconds
        self._unsubscribe_seconds = unsubscribe_seconds

    @property
    def works(self) -> bool:
        """Whether there is a key."""
        return bool(self._ciphers)

    def write(self, link: Link) -> str:
        """The token of a link: equal links have equal tokens, and nobody without a key can read or make one."""
        sealed = self._ciphers[0].encrypt(msgspec.msgpack.encode(link), None)
        return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    def read(self, token: str, now: float) -> Link | None:
        """The link of a token; None for one that is over, damaged or not ours, without saying which."""
        link = self._opened(token) if len(token) <= LONGEST_TOKEN else None
        return None if link is None or link.until <= now else link

    def page(self, tenant_id: str | None, person: str, now: float, base: str) -> tuple[str, int]:
        """The URL of a person's page and its end; `base` stands in for a public URL that is not configured."""
        until = int(now + self._link_seconds)
        token = self.write(Link(tenant_id or "", person, until))
        return f"{self._url or base}{_PATH}{token}", until

    def unsubscribe(self, claim: Claim, categories: Categories) -> str | None:
        """The URL at which one click leaves the message's category; None where it cannot be left by mail.

        Everybody who gets a copy would hold a link that acts for the recipient: an email with copies carries none.
        The end counts from the acceptance, so that every repeat of the message carries the same URL.
        """
        if claim.category is None or claim.channel != "email" or self._url is None or not self._ciphers:
            return None
        category = categories.find(claim.category, claim.tenant_id)
        if category is None or category.required or claim.is_copied():
            return None
        until = int(claim.accepted_at_ms / 1000 + self._unsubscribe_seconds)
        link = Link(claim.tenant_id or "", _person(claim), until, claim.category, claim.channel)
        return f"{self._url}{_PATH}{self.write(link)}"

    def _opened(self, token: str) -> Link | None:
        try:
            sealed = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        for cipher in self._ciphers:
            try:
                return msgspec.msgpack.decode(cipher.decrypt(sealed, None), type=Link)
            except (InvalidTag, ValueError, msgspec.DecodeError):
                continue
        return None


def _person(claim: Claim) -> str:
    """The id under which the person's preferences are kept; a sealed reference does not show the address."""
    if claim.recipient_ref.startswith("user:"):
        return person_of(claim.recipient_ref)
    return f"{claim.recipient_ref.partition(':')[0]}:{claim.address}"
