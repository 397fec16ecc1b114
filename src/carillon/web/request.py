"""One HTTP request as endpoints see it, and the reply they give."""

import random
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec

from carillon.border import strict_loads
from carillon.domain.errors import CarillonError
from carillon.web.about import Reach
from carillon.web.body import RawBody, Receive, check_head, convert, read_body
from carillon.web.problems import Detail, Problem

Kind = TypeVar("Kind")

_CORRELATION = re.compile(rb"[A-Za-z0-9._:/+=@~-]{1,128}")
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_MAX_QUERY_FIELDS = 50
_NO_JSON = b"{}"
# A correlation id must differ, not be secret.
_noise = random.Random()  # noqa: S311 - see above
_SINGLE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"x-api-key",
        b"x-idempotency-key",
    }
)


class Caller(msgspec.Struct, frozen=True):
    """Who asks; anonymous when no secret is configured."""

    sub: str | None = None
    role: str = "admin"
    """Without tokens there is nobody to tell apart, and only loopback is served."""
    tenant_id: str | None = None
    key_id: str | None = None
    """Of an API key, which is a program and nobody's user."""

    @property
    def user_id(self) -> str | None:
        """The user who asks, where it is one."""
        return self.sub if self.key_id is None else None

    @property
    def kind(self) -> Literal["person", "service", "administrator", "operator"]:
        """One of the four kinds of callers."""
        if self.role == "admin":
            return "operator" if self.tenant_id is None else "administrator"
        return "person" if self.key_id is None else "service"

    @property
    def administers(self) -> bool:
        return self.role == "admin"


class Proof(msgspec.Struct, frozen=True):
    """How long the caller's token may be believed."""

    expires_at_ms: int | None = None
    token_id: str | None = None


_ANYBODY = Caller()
_NOTHING = Reach()


async def _nothing_to_prove() -> Proof:
    return Proof()


class UnreadBody(CarillonError):
    """A handler asks for a body that its endpoint does not declare."""


class Reply(msgspec.Struct, frozen=True):
    """What goes back: a value to encode as JSON, ready bytes with their media type, or what writes itself."""

    status: int
    body: Any
    headers: Mapping[str, str] = {}
    media_type: str = "application/json"


class Request:
    """A request whose head is parsed; the web room reads its body before the handler runs."""

    __slots__ = (
        "_body",
        "_body_limit",
        "_body_seconds",
        "_pairs",
        "_receive",
        "_value",
        "caller",
        "correlation_id",
        "found",
        "headers",
        "params",
        "prove",
        "reach",
        "scope",
    )

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, body_limit: int, body_seconds: float) -> None:
        self.scope = scope
        self._receive = receive
        self._body_limit = body_limit
        self._body_seconds = body_seconds
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.params: dict[str, str] = {}
        self._body: bytes | None = None
        self._pairs: dict[str, str] | None = None
        self._value: tuple[object] | None = None
        self.caller = _ANYBODY
        self.reach = _NOTHING
        """What the guard lets this request see and change."""
        self.found: Any = None
        """The thing that an endpoint with `owned` is about."""
        self.prove: Callable[[], Awaitable[Proof]] = _nothing_to_prove
        """Check the caller's token again: raises 401 once it does not hold any more."""
        given = self.headers.get(b"x-correlation-id")
        fits = given is not None and _CORRELATION.fullmatch(given)
        self.correlation_id = given.decode() if given and fits else f"{_noise.getrandbits(128):032x}"

    def check_single_headers(self) -> None:
        """Two values where one is meant would be read differently by a proxy and by us."""
        pairs = self.scope["headers"]
        if len(pairs) == len(self.headers):
            return
        names = [name for name, _ in pairs if name in _SINGLE]
        if len(names) != len(set(names)):
            twice = next(name for name in names if names.count(name) > 1).decode("latin-1")
            raise Problem("VALIDATION_ERROR", f"header {twice} is given twice", details=[Detail("given twice", twice)])

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def client(self) -> str:
        """The peer's address, for limits."""
        client = self.scope.get("client")
        return client[0] if client else ""

    @property
    def trace_id(self) -> str | None:
        """The trace of a valid traceparent header."""
        given = self.headers.get(b"traceparent")
        return None if given is None else trace_of(given)

    async def read(self, *, optional: bool = False, raw: RawBody | None = None, limit: int | None = None) -> None:
        """Read the body, once; 408, 413 and 415 are raised."""
        if self._body is not None:
            return
        if not self.bodied and (optional or raw is not None):
            self._body = _NO_JSON if raw is None else b""
            return
        limit = raw.limit if raw is not None else limit or self._body_limit
        # A chunked body may turn out to be empty, and then it needs no type.
        if not optional or b"content-type" in self.headers:
            check_head(self.headers, limit, raw)
        body = await read_body(self._receive, limit, self._body_seconds)
        if optional and not body.strip():
            body = _NO_JSON
        elif optional:
            check_head(self.headers, limit, raw)
        self._body = body

    @property
    def bodied(self) -> bool:
        """Whether anything comes after the head."""
        return self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers

    @property
    def body(self) -> bytes:
        """The body as it came: signatures are made over bytes."""
        if self._body is None:
            raise UnreadBody("the endpoint does not declare a body")
        return self._body

    def value(self) -> object:
        """The body as strict JSON."""
        if self._value is None:
            self._value = (strict_loads(self.body),)
        return self._value[0]

    def json(self, kind: type[Kind]) -> Kind:
        """The body as a wire type."""
        return convert(self.value(), kind)

    def query(self, kind: type[Kind]) -> Kind:
        """The query string as a wire type; unknown and repeated parameters are refused."""
        return convert(self.pairs(), kind, strict=False)

    def pairs(self) -> dict[str, str]:
        """The query string's parameters."""
        if self._pairs is not None:
            return self._pairs
        raw: bytes = self.scope["query_string"]
        try:
            pairs = parse_qsl(
                raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_QUERY_FIELDS
            )
        except ValueError:
            raise Problem("VALIDATION_ERROR", "the query string is not valid UTF-8 percent-encoding") from None
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Problem("VALIDATION_ERROR", "a query parameter is given twice")
        self._pairs = found
        return found


def trace_of(traceparent: bytes) -> str | None:
    """The trace id of a W3C traceparent; None when it is not valid."""
    found = _TRACEPARENT.fullmatch(traceparent)
    # Version 00 is exactly four fields; only later versions may append more.
    return None if found is None or (found[2] and traceparent.startswith(b"00")) else found[1].decode()
