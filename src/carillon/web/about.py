"""What an endpoint is about: who may call it, whose data it touches, and where the request names them."""

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import msgspec


class Callers(StrEnum):
    """Who may call an endpoint, from everybody to the fewest."""

    UNDECLARED = "undeclared"
    """No endpoint starts with this."""
    EVERYBODY = "everybody"
    """Callers without credentials: probes and files that hold no data."""
    PROOF = "proof"
    """The request carries a proof of its own, which the handler checks: a vendor's signature, a service's token."""
    KNOWN = "known"
    """Every caller with a token, an API key or a ticket."""
    SERVICES = "services"
    """Programs with an API key or a token of the role service, and administrators."""
    ADMINISTRATORS = "administrators"
    """The role admin; one that acts for a tenant reaches that tenant only."""
    OPERATORS = "operators"
    """The role admin without a tenant."""


class RequestPlace(msgspec.Struct, frozen=True):
    """Where a request names a person or a tenant."""

    part: Literal["path", "query", "body"]
    name: str
    """The name on the wire."""


def in_path(name: str) -> RequestPlace:
    return RequestPlace("path", name)


def in_query(name: str) -> RequestPlace:
    return RequestPlace("query", name)


def in_body(name: str) -> RequestPlace:
    return RequestPlace("body", name)


class Found(NamedTuple):
    """A thing and its owner, as the ledger knows them."""

    value: Any
    tenant_id: str | None
    user_id: str | None
    sent_by: str | None = None
    """The service that sent it, for things that services send."""


Find = Callable[[str, str | None], Awaitable[Found | None]]
"""From the id in the path and the tenant that the caller acts for (None for all) to the thing."""


class Owned(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint is about one thing with an owner; other callers get 404."""

    param: str
    """The name of its id in the path."""
    find: Find
    missing: str
    """The sentence of the 404: the same for a missing thing and for one of another owner."""


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration. The web room enforces it before the handler runs; the handler reads `request.reach`."""

    callers: Callers
    person: tuple[RequestPlace, ...] = ()
    """Where the person is named; the first place that says something counts. Only administrators name others."""
    oneself: Literal["never", "default", "needed"] = "never"
    """`default`: where no person is named, it is about the caller. `needed`: a person there must be."""
    tenant: RequestPlace | None = None
    """Where a tenant is named. A caller who acts for a tenant cannot name another one."""
    owned: Owned | None = None
    administrators_if: Callable[[Mapping[str, str]], bool] | None = None
    """For which parameters of the path only administrators may call."""
    head_proof: Callable[[Any], None] | None = None
    """With PROOF: checks what the request's head proves, before its body is read; raises 401."""
    welcomes: bool = False
    """With EVERYBODY: a caller who shows credentials is known to the handler; one who shows none is a stranger."""
    shared: bool = False
    """True: a service sends here for all people of its tenant and reaches what it sent; with auth.people_reach_tenant
    people and services reach everything of their tenant."""

    @property
    def asks(self) -> bool:
        """Whether callers need credentials."""
        return self.callers not in {Callers.EVERYBODY, Callers.PROOF}


UNDECLARED = About(callers=Callers.UNDECLARED)
EVERYBODY = About(callers=Callers.EVERYBODY)
WELCOME = About(callers=Callers.EVERYBODY, welcomes=True)
PROOF = About(callers=Callers.PROOF)
KNOWN = About(callers=Callers.KNOWN)
SERVICES = About(callers=Callers.SERVICES)
ADMINISTRATORS = About(callers=Callers.ADMINISTRATORS)
OPERATORS = About(callers=Callers.OPERATORS)


NO_TENANT = ""
"""The filter for data without a tenant: None would mean every tenant."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the data that one request sees and changes."""

    tenant_id: str | None = None
    """The only tenant; None with `every_tenant`, and otherwise for data without a tenant."""
    every_tenant: bool = False
    user_id: str | None = None
    """The only person; None for all people of the tenant."""
    sent_by: str | None = None
    """The only service whose notifications are in reach; None for those of all senders."""
    bound: bool = True
    """True: the caller reaches only what is the caller's own."""

    @property
    def oneself(self) -> str | None:
        """The caller, if the caller is a person who reaches nobody else."""
        return self.user_id if self.bound and self.sent_by is None else None

    def filters(self) -> dict[str, Any]:
        """The same as the ledger's filters."""
        found: dict[str, Any] = {} if self.every_tenant else {"tenant_id": self.tenant_id or NO_TENANT}
        if self.user_id is not None:
            found["user_id"] = self.user_id
        if self.sent_by is not None:
            found["sent_by"] = self.sent_by
        return found
