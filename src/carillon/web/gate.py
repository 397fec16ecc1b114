"""The gate of every request: who calls, whether they may, and how often."""

import ipaddress
import math
import time
from collections import OrderedDict
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from carillon.domain.errors import LedgerUnavailable
from carillon.domain.events import TokenRefused
from carillon.domain.streams import Ticket
from carillon.web.auth import JwtSettings, Keys, Unauthorized, is_key, shown
from carillon.web.endpoint import Endpoint
from carillon.web.guard import check_override, check_proof, check_role, check_site, reach_of
from carillon.web.problems import Problem
from carillon.web.request import STRANGER, Caller, Proof, Request
from carillon.web.settings import WebSettings

if TYPE_CHECKING:
    from carillon.web.tokens import Guard

_MAX_KEYS = 10_000
_UNAUTHORIZED = 401
_SCHEME = b"bearer"


class Buckets:
    """One token bucket per key; the longest unused key is forgotten when there are too many."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, now: float) -> float:
        """Take one token; 0 when there was one, otherwise the seconds until there will be."""
        level, then = self._levels.pop(key, (self._burst, now))
        level = min(self._burst, level + (now - then) * self._per_second)
        wait = 0.0 if level >= 1.0 else (1.0 - level) / self._per_second
        self._levels[key] = (level - 1.0 if wait == 0.0 else level, now)
        if len(self._levels) > _MAX_KEYS:
            self._levels.popitem(last=False)
        return wait


@lru_cache(maxsize=256)
def host_name(header: bytes) -> str:
    """The name in a Host header, without its port, in lower case."""
    text = header.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


@lru_cache(maxsize=256)
def is_loopback(name: str) -> bool:
    """Whether the name is loopback; a page whose name resolves to this server sends its own name."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def token_guard(settings: JwtSettings) -> "Guard":
    """The checker of tokens; ConfigurationError for a key that cannot be used."""
    from carillon.web.tokens import Guard  # noqa: PLC0415 - slow to load, and only some ask for tokens

    return Guard(settings)


class Gate:
    """Checks every request. Without required credentials every caller is an operator, and only loopback is served."""

    def __init__(self, settings: WebSettings) -> None:
        self._asks = settings.asks
        self._anybody = settings.caller
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)
        self._guard = token_guard(settings.jwt) if settings.jwt else None
        self._keys = Keys(settings.keys) if settings.keys else None
        self._tickets = settings.tickets
        self._observe = settings.observe
        self._people_reach_tenant = settings.people_reach_tenant
        burst = settings.requests_burst
        self._callers = _buckets(settings.requests_per_second, burst)
        self._by_key = _buckets(settings.key_requests_per_second, burst)
        anonymous = settings.anonymous_requests_per_second
        self._anonymous = _buckets(anonymous, 2 * (anonymous or 0))
        failures = settings.auth_failures_per_minute
        self._failures = _buckets(failures and failures / 60, failures or 0)

    def check_host(self, request: Request) -> None:
        """421 for a host name that is not served: a page whose name resolves to this server sends that name."""
        if self._asks and not self._hosts:
            return
        name = host_name(request.headers.get(b"host", b""))
        if not is_loopback(name) and name not in self._hosts:
            raise Problem("MISDIRECTED_REQUEST", "this host name is not served here: see http.allowed_hosts")

    async def admit(self, request: Request, endpoint: Endpoint) -> None:
        """Find out from the head alone who calls, and whether they may; raises 401, 403 or 429."""
        if self._asks and endpoint.about.asks:
            ticket = await self._ticket(request, endpoint)
            if ticket is None:
                request.caller = await self._known(request)
                request.prover = self._prove
            else:
                request.caller = Caller(ticket.user_id, "user", ticket.tenant_id)
                request.prover = partial(self._prove_ticket, Proof(ticket.expires_at_ms, ticket.token_id))
            check_role(request, endpoint.about)
        elif self._asks and endpoint.about.welcomes:
            request.caller = await self._welcomed(request)
        elif not self._asks:
            request.caller = self._anybody
        check_proof(request, endpoint.about)
        check_site(request, endpoint)
        if endpoint.override:
            check_override(request)
        if not endpoint.always:
            buckets, name = self._limit(request, endpoint)
            if buckets is not None:
                _slow_down(buckets, name, "too many requests")

    async def let_reach(self, request: Request, endpoint: Endpoint) -> None:
        """Decide what an admitted request may see and change, once its body is there; raises 400, 403 or 404."""
        request.reach = await reach_of(request, endpoint.about, people_reach_tenant=self._people_reach_tenant)

    def failed(self, request: Request, endpoint: Endpoint, problem: Problem) -> None:
        """After a 401, also a handler's own: report the reason, and limit an address that goes on guessing."""
        if isinstance(problem, Unauthorized):
            # The declared path: the requested one may name people and even tokens.
            where = {"method": endpoint.method, "path": endpoint.path, "address": request.client}
            self._observe(TokenRefused(reason=problem.reason, **where))
        if problem.status != _UNAUTHORIZED or not self._asks:
            return
        if _credential(request):
            buckets, why = self._failures, "too many wrong tokens or keys came from this address"
        else:
            buckets, why = self._anonymous, "too many requests without a valid token or key came from this address"
        if buckets is not None:
            _slow_down(buckets, request.client, why)

    def _limit(self, request: Request, endpoint: Endpoint) -> tuple[Buckets | None, str]:
        caller = request.caller
        if caller.key_id is not None:
            return self._by_key, caller.key_id
        if caller.sub is not None:
            return self._callers, f"{caller.tenant_id}/{caller.sub}"
        if not self._asks:
            return self._callers, request.client
        # Vendors call from few addresses and prove themselves by signatures, so an address is no reason to refuse.
        return self._anonymous if endpoint.by_address else None, request.client

    async def _ticket(self, request: Request, endpoint: Endpoint) -> Ticket | None:
        if self._tickets is None or endpoint.ticket == "no":
            return None
        text = shown(request)
        # An empty one is none: the caller has a token.
        return None if not text else await self._tickets.find(text, opens=endpoint.ticket == "opens")

    async def _prove(self, request: Request) -> Proof:
        await self._known(request)
        credential = _credential(request)
        return Proof() if self._guard is None or is_key(credential) else self._guard.proof(credential)

    async def _prove_ticket(self, proof: Proof, _: Request) -> Proof:
        if self._tickets is not None:
            self._tickets.check(proof)
        return proof

    async def _welcomed(self, request: Request) -> Caller:
        """A stranger where the caller shows nothing, or where the ledger cannot say whose key it is."""
        if not _credential(request):
            return STRANGER
        try:
            return await self._known(request)
        except LedgerUnavailable:
            return STRANGER

    async def _known(self, request: Request) -> Caller:
        credential = _credential(request)
        if is_key(credential):
            if self._keys is None:
                raise Unauthorized("misplaced")
            return await self._keys.caller(credential)
        if self._guard is None or b"x-api-key" in request.headers:
            raise Unauthorized("misplaced" if credential else "missing")
        return self._guard.caller(credential)


def _credential(request: Request) -> bytes:
    """The caller's credential, a token or a key, from one place; two places at once count as none."""
    bearer, key = request.headers.get(b"authorization"), request.headers.get(b"x-api-key")
    if bearer is None or key is not None:
        return (key or b"").strip() if bearer is None else b"?"
    scheme, _, credential = bearer.partition(b" ")
    return credential.strip() if scheme.lower() == _SCHEME else b"?"


def _buckets(per_second: float | None, burst: float) -> Buckets | None:
    return Buckets(per_second, max(1.0, burst)) if per_second else None


def _slow_down(buckets: Buckets, name: str, why: str) -> None:
    wait = buckets.take(name, time.monotonic())
    if wait > 0:
        seconds = max(1, math.ceil(wait))
        message = f"{why}: try again in {seconds} s"
        raise Problem("TOO_MANY_REQUESTS", message, headers={"Retry-After": str(seconds)})
