"""The one outbound HTTP client: one request, one deadline, one value back."""

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TypeAlias

import msgspec

from carillon.domain.outcomes import Outcome, Refused, Unavailable, Unknown
from carillon.providers.curl import CurlRequest, Limits, Transfers
from carillon.providers.echoes import credentials, echoed, without
from carillon.providers.egress import BLOCKED_TEXT, Allowed, Blocked, BlockedAddress, EgressGuard
from carillon.providers.transfer import Transfer

MAX_BODY = 64 * 1024
MAX_EXCERPT = 1024
CALLS_PER_HOST = 200
HOSTS = 5
"""As many hosts may have all their connections at once."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_SAFE_ID = re.compile(r"[A-Za-z0-9_:/@+=-]{1,200}")
_SECONDS = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_MAX_RETRY_AFTER_TEXT = 64


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call; its deadline covers the wait for a connection, DNS, connect, TLS, sending and the whole answer."""

    url: str
    timeout_seconds: float
    body: bytes = b""
    headers: Mapping[str, str] = {}
    method: str = "POST"
    guard: EgressGuard | None = None
    """The egress rules, for every URL that the operator did not write."""
    lines: Sequence[str] = ()
    """Header lines that `header_lines` has already checked; `headers` follow them."""
    secrets: Sequence[str] = ()
    """Credentials in the body, the URL or a signature; those in headers are known by their names."""
    max_answer: int | None = None
    """How much of the answer's body is kept; None is `MAX_BODY`. A larger body ends the call, not complete."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """A peer answered with a status; `complete` is False when the body was cut short."""

    status: int
    head: Sequence[bytes]
    """The header lines, unparsed: for most answers the status is enough."""
    body: bytes
    complete: bool = True

    @property
    def headers(self) -> dict[str, str]:
        """The headers, names in lower-case; of a repeated header the last one counts."""
        # The header lines of an interim answer (1xx) precede those of the final one.
        first = max((at for at, line in enumerate(self.head) if line.startswith(b"HTTP/")), default=-1) + 1
        fields = (line.partition(b":") for line in self.head[first:])
        return {
            name.strip().lower().decode("latin-1"): value.strip().decode("latin-1")
            for name, found, value in fields
            if found
        }

    @property
    def ok(self) -> bool:
        return 200 <= self.status <= 299  # noqa: PLR2004 — HTTP's own numbers

    def excerpt(self) -> str:
        """The start of the body as one printable line, for the note of an attempt."""
        text = self.body[:MAX_EXCERPT].decode("utf-8", "replace")
        return " ".join("".join(char if char.isprintable() else " " for char in text).split())


class NotSent(msgspec.Struct, frozen=True):
    """The request did not leave this machine."""

    error: str
    classification: str


class MaybeSent(msgspec.Struct, frozen=True):
    """The request was sent on a connection and no status came back: the peer may have acted on it."""

    error: str
    classification: str


Reply: TypeAlias = HttpAnswer | NotSent | MaybeSent


class Call:
    """A request in flight; `tell` gets its reply once, unless the request is cancelled before."""

    __slots__ = ("_lines", "_seconds", "_secrets", "_tell", "_transfer", "_transfers")

    def __init__(
        self,
        transfers: Transfers,
        request: HttpRequest,
        lines: Sequence[str],
        tell: Callable[[Reply], None],
    ) -> None:
        self._transfers = transfers
        self._seconds = request.timeout_seconds
        self._secrets = request.secrets
        self._lines = lines
        self._tell = tell
        self._transfer: Transfer | None = None

    def begin(self, request: CurlRequest) -> NotSent | None:
        """Start the transfer; returns the reason if the request is malformed."""
        started = self._transfers.start(request, self._ended)
        if isinstance(started, str):
            return NotSent(f"cannot connect: {started}"[:MAX_EXCERPT], "bad_request")
        self._transfer = started
        return None

    def cancel(self) -> None:
        """End the transfer without a reply."""
        if self._transfer is not None:
            self._transfers.cancel(self._transfer, self._ended)

    def _ended(self, transfer: Transfer) -> None:
        self._tell(self._unechoed(_reply(transfer, self._seconds)))

    def _unechoed(self, reply: Reply) -> Reply:
        """The one place that every answer passes: some vendors repeat the headers of a request that they refuse."""
        if not isinstance(reply, HttpAnswer) or not (reply.body or reply.head):
            return reply
        secrets = credentials(self._lines, self._secrets)
        if not secrets or not echoed((*reply.head, reply.body), secrets):
            return reply
        head = [without(line, secrets) for line in reply.head]
        return HttpAnswer(reply.status, head, without(reply.body, secrets), reply.complete)


class HttpClient:
    """Opens no connection before the first request; its owner closes it."""

    def __init__(self, *, calls_per_host: int = CALLS_PER_HOST, ca_file: str | None = None) -> None:
        self.calls_per_host = calls_per_host
        """Calls to one host that a worker makes at once: libcurl would keep more of them waiting, behind each other
        whatever their lanes are, while their time runs out."""
        self.calls = HOSTS * calls_per_host
        """The same over all hosts."""
        self._limits = Limits(self.calls, calls_per_host, MAX_BODY, ca_file)
        self._transfers: dict[EgressGuard | None, Transfers] = {}

    async def post(self, request: HttpRequest) -> Reply:
        """Make the call once; an error of the peer or the network is a value, not an exception."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Reply] = loop.create_future()
        tell = partial(_fulfil, done)
        call = self.start(request, tell)
        if call is None:
            began = loop.time()
            found = await _resolved(request)
            if isinstance(found, NotSent):
                return found
            call = self._begin(request, found, request.timeout_seconds - (loop.time() - began), tell)
        if not isinstance(call, Call):
            return call
        try:
            return await done
        except asyncio.CancelledError:
            call.cancel()
            raise

    def start(self, request: HttpRequest, tell: Callable[[Reply], None]) -> Call | NotSent | None:
        """Start the call; `tell` gets the reply. Returns None, and starts nothing, when a name needs a DNS look-up."""
        if not _sound(request.headers):
            return NotSent("a header has a forbidden character", "bad_request")
        found = Allowed(request.url) if request.guard is None else request.guard.at_once(request.url)
        if isinstance(found, Blocked):
            return NotSent(BLOCKED_TEXT, "blocked_address")
        return None if found is None else self._begin(request, found, request.timeout_seconds, tell)

    def _begin(
        self, request: HttpRequest, found: Allowed, seconds: float, tell: Callable[[Reply], None]
    ) -> Call | NotSent:
        lines = [*request.lines, *_lines(request.headers)] if request.headers else request.lines
        call = Call(self._of(request.guard), request, lines, tell)
        asked = CurlRequest(request.method, found.url, lines, request.body, seconds, found.pins, request.max_answer)
        return call.begin(asked) or call

    async def aclose(self) -> None:
        transfers, self._transfers = self._transfers, {}
        for one in transfers.values():
            one.close()

    def _of(self, guard: EgressGuard | None) -> Transfers:
        # Each guard has its own connections: one that was opened without the rules must not serve a guarded request.
        transfers = self._transfers.get(guard)
        if transfers is None:
            veto = None if guard is None else guard.admits
            transfers = self._transfers[guard] = Transfers(self._limits, veto)
        return transfers


def _fulfil(done: "asyncio.Future[Reply]", reply: Reply) -> None:
    # A reply may arrive after the caller was cancelled and before the caller runs.
    if not done.done():
        done.set_result(reply)


def header_lines(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Check and format headers that are the same in many requests; raises ValueError."""
    if not _sound(headers):
        raise ValueError("a header has a forbidden character")
    return tuple(_lines(headers))


def _sound(headers: Mapping[str, str]) -> bool:
    # Names and values are checked joined: two matches instead of two for each header.
    return not headers or bool(
        all(headers) and _TOKEN.fullmatch("".join(headers)) and _VALUE.fullmatch("".join(headers.values()))
    )


def _lines(headers: Mapping[str, str]) -> list[str]:
    return [f"{name}: {value}" if value else f"{name};" for name, value in headers.items()]


async def _resolved(request: HttpRequest) -> Allowed | NotSent:
    """The addresses that a guarded request may connect to, or why there are none."""
    seconds = request.timeout_seconds
    if request.guard is None:
        raise RuntimeError("a request without a guard needs no look-up")
    try:
        async with asyncio.timeout(seconds):
            return await request.guard.resolved(request.url)
    except BlockedAddress:
        return NotSent(BLOCKED_TEXT, "blocked_address")
    except TimeoutError:
        return NotSent(f"no address within {seconds:g} s", "timeout")
    except OSError as error:
        return NotSent(f"cannot connect: {error}"[:MAX_EXCERPT], "dns")


def _reply(transfer: Transfer, seconds: float) -> HttpAnswer | NotSent | MaybeSent:
    """The reply of an ended transfer; a status is an answer, even if its body broke off."""
    if transfer.status:
        return HttpAnswer(transfer.status, transfer.head_in, bytes(transfer.body_in), transfer.failure is None)
    if transfer.vetoed:
        return NotSent(BLOCKED_TEXT, "blocked_address")
    classification, text = transfer.failure or ("protocol_error", "no status came")
    if classification == "timeout":
        text = f"no answer within {seconds:g} s"
    if not transfer.began_sending:
        return NotSent(f"cannot connect: {text}"[:MAX_EXCERPT], classification)
    return MaybeSent(text[:MAX_EXCERPT], classification)


def header_id(idempotency_key: str) -> str:
    """The key itself if a header, and a signature that separates by dots, can hold it; otherwise its digest."""
    if _SAFE_ID.fullmatch(idempotency_key):
        return idempotency_key
    return f"msg_{hashlib.sha256(idempotency_key.encode()).hexdigest()}"


def unanswered(failure: NotSent | MaybeSent) -> Outcome:
    """The outcome of a call without a status."""
    if isinstance(failure, MaybeSent):
        return Unknown(failure.error, classification=failure.classification)
    if failure.classification in {"blocked_address", "bad_request"}:
        return Refused(failure.error, classification=failure.classification)
    return Unavailable(failure.error, classification=failure.classification)


def parse_retry_after(value: str | None, wall_now: float) -> float | None:
    """Seconds to wait by a Retry-After header in either form; None when it cannot be read."""
    if value is None or len(value) > _MAX_RETRY_AFTER_TEXT:
        return None
    text = value.strip()
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError, OverflowError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = moment.timestamp() - wall_now
    return max(0.0, seconds) if math.isfinite(seconds) else None
