"""Groups: routes that share turns. A claim goes from group to group, so that nobody waits for a stranger's backlog."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import blake2b
from types import MappingProxyType
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

Grouping: TypeAlias = Literal["tenant", "endpoint", "person", "none"]

GROUPED_BY: Mapping[str, Grouping] = {"webhook": "endpoint", "sse": "person"}
"""Kinds of providers whose groups are not the tenants."""
EVERYBODY = 0
"""The group of routes that name no tenant, endpoint or person, where groups have no caps."""
NOTHING_AHEAD: Mapping[int, int] = MappingProxyType({})
_DEFAULT_PORTS = {"https": 443, "http": 80}
_BYTES = 8


class GroupRule(msgspec.Struct, frozen=True):
    """The weight and the cap of one group; None leaves the cap of its provider's groups."""

    weight: int = 1
    cap: int | None = None


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """How the routes of one provider form groups."""

    provider: str = ""
    by: Grouping = "tenant"
    cap: int | None = None
    """Claims of one group at once, over all processes."""
    address: str | None = None
    """The endpoint of routes without an address."""
    special: Mapping[int, GroupRule] = {}
    """Groups with a rule of their own, by their number without its sign."""
    shared: frozenset[str] = frozenset()
    """Endpoints with URLs that the operator registered: one group, and several breakers."""

    @property
    def capped(self) -> bool:
        """Whether some group of the provider has a cap."""
        return self.cap is not None or any(rule.cap is not None for rule in self.special.values())

    def cap_of(self, number: int) -> int | None:
        """The cap of one group."""
        rule = self.special.get(abs(number))
        return self.cap if rule is None or rule.cap is None else rule.cap

    def waits_for(self, number: int, calls: int | None) -> str | None:
        """Why a route whose turn has come is not called yet: so many claims hold the places of its group."""
        cap = self.cap_of(number)
        if calls is None or cap is None or calls < cap:
            return None
        who = f"its {self.by} is"
        if self.by == "none":
            who = f"{self.provider} is"
        elif number == self.number(None, "", None):
            who = f"{self.provider} without a {self.by} is"
        return f"{who} at {cap} of {cap} calls"

    def is_one_endpoint(self, address: str | None) -> bool:
        """Whether all routes of the group of this address wait for the same endpoint's breaker."""
        return self.by == "endpoint" and endpoint_name(address or self.address or "") not in self.shared

    def turns(self, ahead: Mapping[int, int] = NOTHING_AHEAD, excluded: Collection[int] = ()) -> "Turns":
        """What a claim must know."""
        return Turns(self.cap, self.special, excluded, ahead)

    def number(self, tenant_id: str | None, recipient_ref: str, address: str | None) -> int:
        """The group of a route; negative if groups of this provider have caps.

        A cap counts the calls of one provider, so the groups of two providers differ. An endpoint is one group for all
        providers that call it.
        """
        capped = self.capped
        match self.by:
            case "tenant":
                found = tenant_number(tenant_id, self.provider if capped else "")
            case "endpoint":
                found = group_number(tenant_id, endpoint_name(address or self.address or ""))
            case "person":
                found = group_number(tenant_id, f"{self.provider}/{recipient_ref}" if capped else recipient_ref)
            case _:
                found = EVERYBODY
        return -(found or group_number(None, f"{self.provider}/")) if capped else found

    def instead_of(self, number: int, tenant_id: str | None, recipient_ref: str, address: str | None) -> int | None:
        """The group that a route of this provider must have before it is called; None if it may stay in its group.

        A route in another group came from another provider, or from a time of other settings: it would be called beside
        the caps of this provider, or under the caps of the other.
        """
        if number >= EVERYBODY and not self.capped:
            return None
        own = self.number(tenant_id, recipient_ref, address)
        return None if own == number else own


class Turns(msgspec.Struct, frozen=True):
    """What a claim must know about the groups of one provider."""

    cap: int | None = None
    special: Mapping[int, GroupRule] = {}
    excluded: Collection[int] = ()
    """Groups that the worker does not want now, by their number without its sign: a breaker of theirs is open."""
    ahead: Mapping[int, int] = NOTHING_AHEAD
    """How many claims ahead the worker wants of each group that it calls now, by its number without its sign."""


NO_TURNS = Turns()


@lru_cache(maxsize=16_384)
def group_number(tenant_id: str | None, name: str = "") -> int:
    """The number of a group, the same in every process; 0 if neither a tenant nor a name is given."""
    if not tenant_id and not name:
        return EVERYBODY
    # A tenant's id has a length, so that no two pairs are written alike.
    tenant = tenant_id or ""
    digest = blake2b(f"{len(tenant)}:{tenant}{name}".encode(errors="replace"), digest_size=_BYTES).digest()
    return (int.from_bytes(digest) >> 1) or 1


def tenant_number(tenant_id: str | None, provider: str) -> int:
    """The number of a tenant's group; with a provider, of its calls to that provider."""
    return group_number(tenant_id, f"{provider}/" if provider else "")


@lru_cache(maxsize=16_384)
def endpoint_name(url: str) -> str:
    """Host and port of an endpoint, in lower case; other text is its own name."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme.lower())
    except ValueError:
        return url
    if not parts.hostname:
        return url
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host if port is None else f"{host}:{port}"
