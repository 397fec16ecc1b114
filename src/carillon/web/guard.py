"""The guard: before a handler runs, it decides from the endpoint's declaration what the request may reach."""

import re
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from carillon.web.about import About, Callers, Found, Owned, Reach, RequestPlace
from carillon.web.endpoint import Endpoint
from carillon.web.problems import Detail, Problem
from carillon.web.request import Caller, Request

_SAFE = frozenset({"GET", "HEAD"})
_OWN_SITE = frozenset({b"same-origin", b"none"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNFIT = re.compile(r"[\x00-\x1f\x7f]")
Look = Callable[[RequestPlace], str | None]
"""Reads the name in one place of the request."""


def check_role(request: Request, about: About) -> None:
    """403 where callers of this kind may not call at all."""
    caller, callers = request.caller, about.callers
    if callers is Callers.SERVICES and caller.kind == "person":
        raise Problem("FORBIDDEN", "an API key, the role service or the role admin is required")
    admins = callers in {Callers.ADMINISTRATORS, Callers.OPERATORS}
    if not admins and about.administrators_if is not None:
        admins = about.administrators_if(request.params)
    if admins and not caller.administers:
        raise Problem("FORBIDDEN", "the role admin is required")
    if callers is Callers.OPERATORS and caller.tenant_id is not None:
        raise Problem("FORBIDDEN", "this shows every tenant: a token for one tenant may not see it")


def check_proof(request: Request, about: About) -> None:
    """401 where the head alone shows that the request's own proof is missing or wrong."""
    if about.head_proof is not None:
        about.head_proof(request)


def check_override(request: Request) -> None:
    """403 unless the caller says that this is done by hand on purpose."""
    if (request.header(b"x-admin-override") or "").lower() != "true":
        raise Problem(
            "ADMIN_OVERRIDE_REQUIRED", "this changes deliveries by hand; send the header X-Admin-Override: true"
        )


def check_site(request: Request, endpoint: Endpoint) -> None:
    """403 for a page of another site, where no credential proves that the caller meant it.

    A browser adds no token and no key by itself, so a request with one comes from a program that holds it.
    """
    if request.caller.sub is not None:
        return
    site = request.headers.get(b"sec-fetch-site")
    if request.scope["method"] in _SAFE:
        foreign = bool(endpoint.about.person) and site == b"cross-site"
    elif site is not None:
        foreign = site not in _OWN_SITE
    else:
        foreign = _foreign_origin(request)
    if foreign:
        raise Problem("FORBIDDEN", "a page of another site may not act here")


async def reach_of(request: Request, about: About, *, people_reach_tenant: bool) -> Reach:
    """What the request may see and change; 400, 403 and 404 are raised."""
    bound = _bound(request.caller, about, people_reach_tenant=people_reach_tenant)
    if about.owned is not None:
        return await _owned(request, about.owned, bound=bound)
    return _reach(request.caller, about, partial(_named, request), bound=bound)


def reach_of_item(request: Request, about: About, item: object) -> Reach:
    """The same for one item of a body that has many; `about` names places in the item's body."""

    def look(place: RequestPlace) -> str | None:
        return _text(item.get(place.name) if isinstance(item, dict) else None, place.name)

    return _reach(request.caller, about, look, bound=request.reach.bound)


def _reach(caller: Caller, about: About, look: Look, *, bound: bool) -> Reach:
    tenant_id = caller.tenant_id if about.tenant is None else _tenant(caller, look(about.tenant), about.tenant)
    sent_by = caller.service if bound and about.shared else None
    # A service names any person of its tenant; what it reaches is limited by who sent it.
    to_oneself = bound and sent_by is None
    user_id = _person(caller, about, look, bound=to_oneself) if about.person or about.oneself != "never" else None
    every = tenant_id is None and caller.kind == "operator"
    return Reach(tenant_id=tenant_id, every_tenant=every, user_id=user_id, sent_by=sent_by, bound=bound)


def _tenant(caller: Caller, named: str | None, place: RequestPlace) -> str | None:
    """The tenant a request acts for: the caller's, or the one that an operator names."""
    if named is None or named == caller.tenant_id:
        return caller.tenant_id
    if caller.kind == "operator":
        return named
    raise Problem("FORBIDDEN", "the token belongs to another tenant", details=[Detail("not yours", place.name)])


def _named(request: Request, place: RequestPlace) -> str | None:
    """The name in one place of the request; None if it is missing."""
    match place.part:
        case "path":
            return request.params[place.name]
        case "query":
            return _text(request.pairs().get(place.name), place.name)
        case "body":
            value = request.value()
            return _text(value.get(place.name) if isinstance(value, dict) else None, place.name)


def _text(found: object, name: str) -> str | None:
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    if found is None or found == "":
        return None
    if not isinstance(found, str):
        raise Problem("VALIDATION_ERROR", f"{name} must be a text", details=[Detail("not a text", name)])
    if not found.strip():
        raise Problem("VALIDATION_ERROR", f"{name} is required", details=[Detail("required", name)])
    if _UNFIT.search(found):
        raise Problem("VALIDATION_ERROR", f"{name} has control characters", details=[Detail("not valid", name)])
    return found


def _bound(caller: Caller, about: About, *, people_reach_tenant: bool) -> bool:
    """Whether the caller reaches only what is the caller's own: a person's notifications, what a service sent."""
    return not caller.administers and not (about.shared and people_reach_tenant)


def _person(caller: Caller, about: About, look: Look, *, bound: bool) -> str | None:
    """The person a request is about: named, or the caller; a caller who is bound names nobody else."""
    named, name = None, "userId"
    for place in about.person:
        named, name = look(place), place.name
        if named is not None:
            break
    if bound and named not in {None, caller.user_id}:
        raise Problem(
            "FORBIDDEN",
            "this belongs to another person; use an administrator's token",
            details=[Detail("not yours", name)],
        )
    user_id = caller.user_id if named is None and (bound or about.oneself != "never") else named
    if user_id is None and (bound or about.oneself == "needed"):
        raise Problem("VALIDATION_ERROR", f"{name} is required", details=[Detail("required", name)])
    return user_id


async def _owned(request: Request, owned: Owned, *, bound: bool) -> Reach:
    caller = request.caller
    found = await owned.find(request.params[owned.param], caller.tenant_id)
    if found is None or not _is_of_tenant(caller, found) or (bound and not _is_own(caller, found)):
        raise Problem("NOT_FOUND", owned.missing)
    request.found = found.value
    return Reach(tenant_id=found.tenant_id, user_id=found.user_id, bound=bound)


def _is_of_tenant(caller: Caller, found: Found) -> bool:
    return caller.kind == "operator" or found.tenant_id == caller.tenant_id


def _is_own(caller: Caller, found: Found) -> bool:
    if caller.kind == "service":
        return found.sent_by == caller.service
    return found.user_id is not None and found.user_id == caller.user_id


def _foreign_origin(request: Request) -> bool:
    origin = request.header(b"origin")
    if origin is None:
        return False
    scheme = origin.partition("://")[0]
    own = _address(f"{scheme}://{request.header(b'host') or ''}")
    # `null` is the origin of a sandboxed page, which has no address.
    return own is None or _address(origin) != own


def _address(url: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(url)
        return (parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)) if parts.hostname else None
    except ValueError:
        return None
