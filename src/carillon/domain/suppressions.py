"""Suppressions: whose they are, of which kind, how long they hold, and what a route keeps of them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from carillon.domain.addresses import REFERENCES, unfit

SUPPRESSED = "the address is suppressed"
"""What every answer, story and dead letter says about it."""
CLASSIFICATION = "suppressed"
"""The machine's word for it, on skipped routes and dead letters."""
SHARED = ""
"""The tenant of a suppression that holds for everybody."""
_DAY = 86_400.0
# Twilio's callbacks name a refusal by its number only.
_OPTED_OUT = ("opted_out", "unsubscribed_address", "21610")
_COMPLAINED = ("spam_reporting_address",)
SAID_NO = (*_OPTED_OUT, *_COMPLAINED)
"""Vendors' words for a person who wants no messages: another vendor must not be asked instead."""


class SuppressionKind(StrEnum):
    """Why nothing is sent; the kind decides for how long."""

    BOUNCED = "bounced"
    """The mailbox does not exist."""
    COMPLAINED = "complained"
    """The person called a message spam."""
    UNSUBSCRIBED = "unsubscribed"
    """The person wants no more messages, or blocks the sender at the vendor."""
    INVALID = "invalid"
    """A number, device token or endpoint that a vendor refuses for good."""
    MANUAL = "manual"
    """Added by hand."""


class Suppression(msgspec.Struct, frozen=True):
    """Nothing more is sent to this address, for one tenant or, if the tenant is empty, for everybody."""

    channel: str
    address: str
    tenant_id: str
    reason: str
    source: str
    """Its origin: delivery, receipt, operator or unsubscribe."""
    seconds: float | None = None
    """For how long, by the ledger's clock; None is for ever."""
    kind: SuppressionKind = SuppressionKind.MANUAL
    until_ms: int | None = None
    """Its end in Unix milliseconds, where the end was named and not a duration."""


class SuppressionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How long a suppression of each kind holds, in seconds (None is for ever), and whose it is."""

    bounced: float | None = 90 * _DAY
    complained: float | None = None
    unsubscribed: float | None = None
    invalid: float | None = 30 * _DAY
    share_bounces: bool = False
    """True: hard bounces of an address hold for every tenant."""

    def is_shared(self, kind: SuppressionKind) -> bool:
        """Whether a suppression of this kind holds for every tenant, and the reports of all tenants count together."""
        return kind is SuppressionKind.BOUNCED and self.share_bounces

    def caused(
        self,
        kind: SuppressionKind,
        *,
        channel: str,
        address: str,
        tenant_id: str | None,
        reason: str,
        source: str,
    ) -> Suppression:
        """The suppression that a message of this tenant causes."""
        seconds: float | None = getattr(self, kind)
        owner = SHARED if self.is_shared(kind) else tenant_id or SHARED
        return Suppression(channel, address, owner, reason, source, seconds, kind)


def kind_of_refusal(channel: str, classification: str | None) -> SuppressionKind:
    """The kind of suppression after a vendor has said that an address is dead."""
    if classification in _OPTED_OUT:
        return SuppressionKind.UNSUBSCRIBED
    if classification in _COMPLAINED:
        return SuppressionKind.COMPLAINED
    return SuppressionKind.BOUNCED if channel == "email" else SuppressionKind.INVALID


def unfit_suppression(channel: str, address: str) -> tuple[str, str] | None:
    """The field and the reason of a suppression that could hold nobody back: no message could ever go there."""
    if channel not in REFERENCES:
        return "channel", f"there is no channel {channel}; known are {', '.join(sorted(REFERENCES))}"
    wanted = unfit(channel, address)
    return None if wanted is None else ("address", f"address must be {wanted}")


class SuppressionRef(msgspec.Struct, frozen=True, gc=False):
    """What a route keeps of the suppression that stopped it, also after the suppression has ended."""

    suppression_id: int
    kind: str
    until_ms: int | None
    """Unix milliseconds; None is for ever."""


class SuppressedRoute(msgspec.Struct, frozen=True, gc=False):
    """A route that was enrolled as skipped because its address is suppressed."""

    route_id: str
    channel: str
    suppression: SuppressionRef


class SuppressionLedger(Protocol):
    """Where suppressions are kept."""

    async def suppress(self, suppressions: Sequence[Suppression]) -> None:
        """Store suppressions; an existing one never becomes shorter."""
        ...

    async def unsuppress(self, channel: str, address: str, tenant_id: str) -> bool:
        """End one suppression; False if there was none."""
        ...

    async def suppression(self, suppression_id: int) -> dict[str, Any] | None:
        """One suppression in force."""
        ...

    async def suppressions(
        self, filters: Mapping[str, Any], limit: int, offset: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Suppressions in force, newest first, and how many match in all."""
        ...
