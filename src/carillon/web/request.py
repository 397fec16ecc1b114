"""One HTTP request as endpoints see it, the body that is read under limits, and the reply."""

import asyncio
import datetime as dt
import random
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec

from carillon.border import fault, strict_loads
from carillon.domain.errors import CarillonError
from carillon.web.about import Reach
from carillon.web.peers import SlowBodies
from carillon.web.problems import Detail, Problem

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Kind = TypeVar("Kind")

_JSON = b"application/json"
_UTF8 = re.compile(rb'application/json\s*;\s*charset="?utf-8"?\s*', re.IGNORECASE)
_MAX_DIGITS = 18
_CORRELATION = re.compile(rb"[A-Za-z0-9._:/+=@~-]{1,128}")
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_PAGE = ("page", "pageNumber")
_MAX_QUERY_FIELDS = 50
_NO_JSON = b"{}"
# A correlation id must differ, not be secret.
_noise = random.Random()  # noqa: S311 - see above
_SINGLE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"transfer-encoding",
        b"x-api-key",
        b"x-idempotency-key",
    }
)


class RawBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body that an endpoint reads as bytes, because its proof is made over bytes."""

    limit: int
    media_types: tuple[str, ...] = ("application/json",)


LARGER = ": http.max_body_bytes is the limit; give a large file by its URL, or raise the limit"


def check_head(headers: Mapping[bytes, bytes], limit: int, raw: RawBody | None = None) -> None:
    """Refuse a body by its headers alone, before a byte of it is read."""
    kind = headers.get(b"content-type", b"")
    if raw is not None:
        if kind.partition(b";")[0].strip().lower().decode("latin-1") not in raw.media_types:
            raise Problem("UNSUPPORTED_MEDIA_TYPE", f"Content-Type must be {' or '.join(raw.media_types)}")
    elif kind != _JSON and kind.strip().lower() != _JSON and not _UTF8.fullmatch(kind.strip()):
        raise Problem("UNSUPPORTED_MEDIA_TYPE", "Content-Type must be application/json in UTF-8")
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() != b"identity":
        # Decompressing is where a small body becomes a huge one.
        raise Problem(
            "UNSUPPORTED_MEDIA_TYPE", "Content-Encoding must be identity", headers={"Accept-Encoding": "identity"}
        )
    if raw is not None:
        # Refused in the middle of its batch, a vendor sees a broken connection and no 413: read up to the limit.
        return
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and (len(length) > _MAX_DIGITS or int(length) > limit):
        raise _too_large(limit, LARGER)


async def read_body(
    receive: Receive, limit: int, seconds: float, slow: SlowBodies | None = None, address: str = ""
) -> bytes:
    """The whole body in time, never more than `limit` bytes of it in memory, and few slow ones of one address."""
    watched = (slow or SlowBodies(0)).watch(address, seconds)
    try:
        with watched:
            return await _whole(receive, limit)
    except TimeoutError:
        # The connection ends: the rest of the body would be in the way of the next request.
        close = {"Connection": "close"}
        if watched.refused:
            text = "too many slow bodies come from this address: send a body at once"
            raise Problem("TOO_MANY_REQUESTS", text, headers=close | {"Retry-After": "1"}) from None
        raise Problem("REQUEST_TIMEOUT", "the body did not arrive in time", headers=close) from None


async def _whole(receive: Receive, limit: int) -> bytes:
    message = await _next(receive)
    chunk: bytes = _bytes(message)
    if not message.get("more_body"):
        return _within(chunk, limit)
    chunks, size = [chunk], len(chunk)
    while message.get("more_body"):
        if size > limit:
            raise _too_large(limit)
        message = await _next(receive)
        chunk = _bytes(message)
        chunks.append(chunk)
        size += len(chunk)
    return _within(b"".join(chunks), limit)


async def _next(receive: Receive) -> MutableMapping[str, Any]:
    try:
        return await receive()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The server cancels the awaited future, not the task, when the client leaves in the middle of a body.
        return {"type": "http.disconnect"}


def _bytes(message: MutableMapping[str, Any]) -> bytes:
    if message["type"] == "http.disconnect":
        # Also what broken chunked framing looks like from here, so an answer may still be read.
        raise Problem("VALIDATION_ERROR", "the body ended early", headers={"Connection": "close"})
    body: bytes = message.get("body", b"")
    return body


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int, what_to_do: str = "") -> Problem:
    said = f"the body is larger than {limit} bytes{what_to_do}"
    return Problem("PAYLOAD_TOO_LARGE", said, headers={"Connection": "close"})


def convert(value: object, kind: type[Kind], *, strict: bool = True, prefix: str = "") -> Kind:
    """Check `value` against a wire type and say which field is wrong."""
    try:
        return msgspec.convert(value, type=kind, strict=strict)
    except msgspec.ValidationError as error:
        wrong = fault(error, kind, prefix)
        raise Problem("VALIDATION_ERROR", wrong.sentence, details=[Detail(wrong.text, wrong.field)]) from None


def unix_ms(text: str, field: str) -> int:
    """Unix milliseconds of a time with an offset; a Problem names the field."""
    moment = convert(text, dt.datetime, prefix=field)
    if moment.tzinfo is None:
        raise Problem("VALIDATION_ERROR", f"{field} needs an offset from UTC", details=[Detail("no offset", field)])
    return round(moment.timestamp() * 1000)


class Caller(msgspec.Struct, frozen=True):
    """Who asks; without tokens and keys every caller is an operator, and only loopback is served."""

    sub: str | None = None
    role: str = "admin"
    tenant_id: str | None = None
    key_id: str | None = None
    """The id of an API key; a program holds it, not a person."""
    service: str | None = None
    """The name of a service: its keys' name, or the `sub` of its token. Together with the tenant, its identity."""

    @property
    def user_id(self) -> str | None:
        """The user who asks, where it is one."""
        return self.sub if self.service is None else None

    @property
    def actor(self) -> str:
        """Who the audit trail says did something by hand; without required credentials nobody has a name."""
        return self.sub or "anonymous"

    @property
    def kind(self) -> Literal["person", "service", "administrator", "operator"]:
        """One of the four kinds of callers."""
        if self.role == "admin":
            return "operator" if self.tenant_id is None else "administrator"
        return "person" if self.service is None else "service"

    @property
    def administers(self) -> bool:
        return self.role == "admin"


class Proof(msgspec.Struct, frozen=True):
    """How long the caller's token may be believed."""

    expires_at_ms: int | None = None
    token_id: str | None = None


_ANYBODY = Caller()
STRANGER = Caller(role="stranger")
"""A caller without credentials where others show some."""
_NOTHING = Reach()


async def _nothing_to_prove(_: "Request") -> Proof:
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
        "_slow",
        "_value",
        "caller",
        "client",
        "correlation_id",
        "found",
        "headers",
        "params",
        "prover",
        "reach",
        "scope",
    )

    def __init__(
        self,
        scope: MutableMapping[str, Any],
        receive: Receive,
        body_limit: int,
        body_seconds: float,
        slow: SlowBodies | None = None,
    ) -> None:
        self.scope = scope
        self._slow = slow
        client = scope.get("client")
        self.client: str = client[0] if client else ""
        """The caller's address, for limits: the peer's, or the one that a trusted proxy names."""
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
        self.prover: Callable[[Request], Awaitable[Proof]] = _nothing_to_prove
        """Takes the request instead of keeping it: a request in a cycle would wait for the garbage collector."""
        given = self.headers.get(b"x-correlation-id")
        fits = given is not None and _CORRELATION.fullmatch(given)
        self.correlation_id = given.decode() if given and fits else f"{_noise.getrandbits(128):032x}"

    async def prove(self) -> Proof:
        """Check the caller's token again: raises 401 once it does not hold any more."""
        return await self.prover(self)

    def check_headers(self) -> None:
        """400 for what a proxy and this server could read differently: a repeated single header, an odd coding.

        The connection ends with the reply, because the next request may begin elsewhere for the proxy.
        """
        coding = self.headers.get(b"transfer-encoding")
        if coding is not None and coding.strip().lower() != b"chunked":
            # Granian reads `gzip, chunked` as `chunked`.
            raise _ambiguous("transfer-encoding", "is not chunked")
        pairs = self.scope["headers"]
        if len(pairs) == len(self.headers):
            return
        names = [name for name, _ in pairs if name in _SINGLE]
        if len(names) != len(set(names)):
            twice = next(name for name in names if names.count(name) > 1).decode("latin-1")
            raise _ambiguous(twice, "is given twice")

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def trace_id(self) -> str | None:
        """The trace of a valid traceparent header."""
        given = self.headers.get(b"traceparent")
        return None if given is None else trace_of(given)

    async def read(self, *, optional: bool = False, raw: RawBody | None = None) -> None:
        """Read the body, once; 408, 413 and 415 are raised."""
        if not self.bodied and (optional or raw is not None):
            self._body = _NO_JSON if raw is None else b""
            return
        limit = raw.limit if raw is not None else self._body_limit
        # A chunked body may turn out to be empty, and then it needs no type.
        if not optional or b"content-type" in self.headers:
            check_head(self.headers, limit, raw)
        try:
            body = await read_body(self._receive, limit, self._body_seconds, self._slow, self.client)
        except Problem as problem:
            # A body whose length its head did not say.
            if problem.code != "PAYLOAD_TOO_LARGE" or raw is not None:
                raise
            raise _too_large(limit, LARGER) from None
        if optional and not body.strip():
            body = _NO_JSON
        elif optional:
            check_head(self.headers, limit, raw)
        self._body = body

    @property
    def bodied(self) -> bool:
        """Whether a body follows the head."""
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
        pairs = self.pairs()
        for name, other in (_PAGE, _PAGE[::-1]):
            # Lists have called their page by both names: each list takes both.
            if name in pairs and other not in pairs and other in getattr(kind, "__struct_encode_fields__", ()):
                pairs = {(other if each == name else each): value for each, value in pairs.items()}
                break
        return convert(pairs, kind, strict=False)

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


def _ambiguous(header: str, why: str) -> Problem:
    details = [Detail(why.removeprefix("is "), header)]
    return Problem("VALIDATION_ERROR", f"header {header} {why}", details=details, headers={"Connection": "close"})


def trace_of(traceparent: bytes) -> str | None:
    """The trace id of a W3C traceparent; None when it is not valid."""
    found = _TRACEPARENT.fullmatch(traceparent)
    # Version 00 is exactly four fields; only later versions may append more.
    return None if found is None or (found[2] and traceparent.startswith(b"00")) else found[1].decode()
