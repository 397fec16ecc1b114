"""Signed webhooks to whatever endpoint the route names."""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from carillon.domain.canonical import canonical
from carillon.domain.claims import Claim, Dispatch
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable
from carillon.providers import Tools
from carillon.providers.egress import Rules, parse_networks, parse_own, parse_ports
from carillon.providers.guard import Guard
from carillon.providers.http import Answer, MaybeSent, NotSent, Request, header_id, parse_retry_after, unanswered
from carillon.providers.secret import Secret
from carillon.providers.webhook_signing import MAX_SECRETS, SigningKey, sign_standard, sign_x_webhook

CHANNELS = frozenset({"webhook"})
_encode = msgspec.json.Encoder(order="sorted").encode
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,2000}")
_OURS = re.compile(
    r"host|content-(?:length|type|encoding)|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect"
    r"|proxy-.*|cookie|accept-encoding|webhook-.*|x-webhook-.*",
    re.IGNORECASE,
)
_GONE, _TOO_MANY, _FIRST_REDIRECT, _LAST_REDIRECT = 410, 429, 300, 399

Secrets = Annotated[list[Secret], msgspec.Meta(max_length=MAX_SECRETS)]


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How to sign, and where calls may go."""

    url: str | None = None
    """The endpoint of routes without an address; the operator wrote it, so the egress rules do not apply to it."""
    secrets: Secrets = []
    """Newest first; every one of them signs, so that receivers can change over in their own time."""
    endpoints: dict[str, Secrets] = {}
    """Secrets of single endpoints, by URL; others use `secrets`."""
    scheme: Literal["standard", "x-webhook"] = "standard"
    headers: dict[str, str] = {}
    user_agent: str = "Carillon"
    concurrency_per_endpoint: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    slot_wait_seconds: Annotated[float, msgspec.Meta(ge=0.0)] = 1.0
    """How long a call may wait for an endpoint that is busy with others before it is put off."""
    allow_http: bool = False
    allow_networks: list[str] = []
    allow_hosts: list[str] = []
    allow_ports: list[str | int] = []

    def rules(self, own_addresses: Sequence[str]) -> Rules:
        return Rules(
            allow_http=self.allow_http,
            allow_networks=parse_networks(self.allow_networks),
            allow_hosts=frozenset(host.lower() for host in self.allow_hosts),
            allow_ports=parse_ports(self.allow_ports),
            own=parse_own(own_addresses),
        )


class Webhook:
    """One POST for each message, signed over exactly the bytes that are sent."""

    def __init__(self, name: str, settings: Settings, tools: Tools, guard: Guard) -> None:
        self.name = name
        self._settings = settings
        self._clock = tools.clock
        self._http = tools.http
        self._guard = guard
        self._slots = _Slots(settings.concurrency_per_endpoint, settings.slot_wait_seconds)
        self._headers = {"User-Agent": settings.user_agent, **settings.headers, "Content-Type": "application/json"}
        _check_headers(settings.headers | {"User-Agent": settings.user_agent})
        self._signers = {url: _signer(settings, secrets) for url, secrets in settings.endpoints.items()}
        self._signer = _signer(settings, settings.secrets) if settings.secrets else None

    async def send(self, dispatch: Dispatch) -> Outcome:
        claim = dispatch.claim
        url = claim.address or self._settings.url
        signer = None if url is None else self._signers.get(url, self._signer)
        if url is None or signer is None:
            return Refused("the route has no endpoint, or the endpoint no secret", classification="no_endpoint")
        began = self._clock.monotonic()
        if not await self._slots.take(url, dispatch.timeout_seconds):
            return Throttled("the endpoint is busy with other calls", retry_after=self._settings.slot_wait_seconds)
        try:
            left = max(0.0, dispatch.timeout_seconds - (self._clock.monotonic() - began))
            return self._judge(await self._http.post(self._request(dispatch, url, signer, left)))
        finally:
            self._slots.give_back(url)

    def _request(self, dispatch: Dispatch, url: str, signer: "_Standard | _XWebhook", seconds: float) -> Request:
        claim = dispatch.claim
        body = body_of(dispatch, self._settings.scheme)
        signed = signer.headers(header_id(claim.idempotency_key), int(self._clock.wall()), body)
        return Request(
            url=url,
            body=body,
            headers=self._headers | signed,
            timeout_seconds=seconds,
            guard=self._guard if claim.address else None,
        )

    async def aclose(self) -> None:
        """Connections belong to the shared client."""

    def _judge(self, answer: Answer | NotSent | MaybeSent) -> Outcome:
        if not isinstance(answer, Answer):
            return unanswered(answer)
        if answer.ok:
            return Sent()
        error = f"HTTP {answer.status} {answer.excerpt()}".strip()
        retry_after = parse_retry_after(answer.headers.get("retry-after"), self._clock.wall())
        if answer.status == _TOO_MANY:
            return Throttled(error, retry_after=retry_after)
        # The older contract knows two answers only: 2xx, and try again.
        if self._settings.scheme == "standard":
            if answer.status == _GONE:
                return Refused(error, classification="endpoint_gone", recipient_gone=True)
            if _FIRST_REDIRECT <= answer.status <= _LAST_REDIRECT:
                return Refused(error, classification="redirect")
        # Endpoints answer 404 or 401 while they are being deployed: every other failure is worth a retry.
        return Unavailable(error, classification=f"http_{answer.status}", retry_after=retry_after)


class _Standard:
    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._keys = [SigningKey(secret) for secret in secrets]

    def headers(self, message: str, stamp: int, body: bytes) -> dict[str, str]:
        signature = sign_standard(self._keys, message, stamp, body)
        return {"webhook-id": message, "webhook-timestamp": str(stamp), "webhook-signature": signature}


class _XWebhook:
    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._newest = secrets[0]

    def headers(self, message: str, stamp: int, body: bytes) -> dict[str, str]:
        return {
            "X-Webhook-Event-ID": message,
            "X-Webhook-Timestamp": str(stamp),
            "X-Webhook-Signature": sign_x_webhook(self._newest, stamp, body),
        }


class _Slots:
    """Keeps one slow endpoint from taking every worker; knows only endpoints that are being called."""

    def __init__(self, limit: int, wait_seconds: float) -> None:
        self._limit = limit
        self._wait = wait_seconds
        self._taken: dict[str, int] = {}
        self._queues: dict[str, deque[asyncio.Future[bool]]] = {}

    async def take(self, endpoint: str, timeout_seconds: float) -> bool:
        """Take a slot, or wait a little for one; every slot taken is given back."""
        taken = self._taken.get(endpoint, 0)
        if taken < self._limit:
            self._taken[endpoint] = taken + 1
            return True
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        queue = self._queues.setdefault(endpoint, deque())
        queue.append(turn)
        timer = loop.call_later(min(self._wait, timeout_seconds), _give_up, turn)
        got = False
        try:
            got = await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.result():
                # The slot was handed over in the very moment of being cancelled.
                self.give_back(endpoint)
            raise
        finally:
            timer.cancel()
            if not got and turn in queue:
                queue.remove(turn)
        return got

    def give_back(self, endpoint: str) -> None:
        """Hand the slot to whoever waits longest; the last one out forgets the endpoint."""
        queue = self._queues.get(endpoint)
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self._queues.pop(endpoint, None)
        if self._taken[endpoint] > 1:
            self._taken[endpoint] -= 1
        else:
            del self._taken[endpoint]


def _give_up(turn: asyncio.Future[bool]) -> None:
    if not turn.done():
        turn.set_result(False)


def body_of(dispatch: Dispatch, scheme: str) -> bytes:
    """The bytes of every attempt of this message: nothing in them depends on when they are sent."""
    claim = dispatch.claim
    if scheme == "x-webhook":
        return canonical(msgspec.json.decode(claim.payload_json)).encode()
    # Beside the payload, not inside it: a producer may have a `message` of its own. The payload is our text already.
    data: dict[str, Any] = {"notification_id": claim.notification_id, "payload": msgspec.Raw(claim.payload_json)}
    if dispatch.message is not None:
        data["message"] = dispatch.message
    return _encode({"type": claim.notification_type, "timestamp": _accepted_at(claim), "data": data})


def _accepted_at(claim: Claim) -> str:
    seconds, milliseconds = divmod(claim.accepted_at_ms, 1000)
    return f"{_second(seconds)}.{milliseconds:03d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _signer(settings: Settings, secrets: Sequence[Secret]) -> _Standard | _XWebhook:
    if not secrets:
        raise ValueError("endpoints: an endpoint needs at least one secret")
    return _Standard(secrets) if settings.scheme == "standard" else _XWebhook(secrets)


def _check_headers(headers: dict[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"headers: {name[:100]!r} or its value has a forbidden character")
        if _OURS.fullmatch(name):
            raise ValueError(f"headers: {name!r} is not yours to set")


def create(name: str, settings: Settings, tools: Tools) -> Webhook:
    if not settings.secrets and not settings.endpoints:
        raise ValueError("secrets: at least one secret is needed to sign with")
    return Webhook(name, settings, tools, Guard(settings.rules(tools.own_addresses)))
