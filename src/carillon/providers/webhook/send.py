"""Signed webhooks: one POST to the endpoint that a route names."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.intents import canonical
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable
from carillon.domain.targets import endpoint_of
from carillon.providers import Tools
from carillon.providers.egress import EgressGuard, Rules, parse_networks, parse_own, parse_ports
from carillon.providers.http import (
    HttpAnswer,
    HttpRequest,
    Reply,
    header_id,
    header_lines,
    parse_retry_after,
    unanswered,
)
from carillon.providers.tools import Secret
from carillon.providers.webhook.call import CallRules, Slots, WebhookCall
from carillon.providers.webhook.signing import MAX_SECRETS, SigningKey, sign_standard, sign_x_webhook

CHANNELS = frozenset({"webhook"})
TELLS = frozenset({"delivered", "read", "acknowledged"})
"""The application that a webhook calls may report all of it over the API."""
CONCURRENCY_PER_ENDPOINT = 8
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
    """How to sign, and which endpoints may be called."""

    url: str | None = None
    """The endpoint of routes without an address; the egress rules do not apply to it, as the operator wrote it."""
    secrets: Secrets = []
    """Newest first; each of them signs, so that receivers can change to a new one at any time."""
    endpoints: dict[str, Secrets] = {}
    """Secrets of single endpoints, by URL; others use `secrets`."""
    scheme: Literal["standard", "x-webhook"] = "standard"
    headers: dict[str, str] = {}
    user_agent: str = "Carillon"
    concurrency_per_endpoint: Annotated[int, msgspec.Meta(ge=1, le=1000)] = CONCURRENCY_PER_ENDPOINT
    """Also the cap of the endpoint's group over all processes, unless `[groups]` says otherwise."""
    slot_wait_seconds: Annotated[float, msgspec.Meta(ge=0.0)] = 1.0
    """How long a call waits for a slot of a busy endpoint before the route is throttled."""
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
    """One POST for each message; the signature covers exactly the bytes that are sent."""

    learns_rates = True

    def __init__(self, name: str, settings: Settings, tools: Tools, guard: EgressGuard) -> None:
        self.name = name
        self._settings = settings
        self._clock = tools.clock
        self.calls_at_once = tools.http.calls
        slots = Slots(settings.concurrency_per_endpoint)
        self._rules = CallRules(tools.clock, tools.http, slots, settings.slot_wait_seconds, self._judge)
        self._guard = guard
        _check_headers(settings.headers | {"User-Agent": settings.user_agent})
        headers = {"User-Agent": settings.user_agent, **settings.headers, "Content-Type": "application/json"}
        self._fixed = header_lines(headers)
        self._registered = {url: hashlib.sha256(url.encode()).hexdigest()[:8] for url in settings.endpoints}
        self._signers = {url: _signer(settings, secrets) for url, secrets in settings.endpoints.items()}
        self._signer = _signer(settings, settings.secrets) if settings.secrets else None

    def endpoint(self, address: str | None) -> str | None:
        """The host and port of the route's URL, each with a breaker of its own; a registered URL has its own too."""
        url = address or self._settings.url
        if url is None:
            return None
        found = endpoint_of(url)
        # Many receivers share one host at some vendors: an endpoint that the operator registered counts alone. Its path
        # may hold a secret, so a digest stands for the URL.
        return f"{found}#{self._registered[url]}" if found is not None and url in self._registered else found

    async def send(self, dispatch: Dispatch) -> Outcome:
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        cancel = self.start(dispatch, partial(_fulfil, done))
        try:
            return await done
        except asyncio.CancelledError:
            cancel()
            raise

    def start(self, dispatch: Dispatch, tell: Callable[[Outcome], None]) -> Callable[[], None]:
        url = dispatch.claim.address or self._settings.url
        signer = None if url is None else self._signers.get(url, self._signer)
        if url is None or signer is None:
            tell(Refused("the route has no endpoint, or the endpoint no secret", classification="no_endpoint"))
            return _nothing
        request = partial(self._request, dispatch, url, signer)
        call = WebhookCall(self._rules, url, dispatch.timeout_seconds, request, tell)
        call.begin()
        return call.cancel

    def _request(self, dispatch: Dispatch, url: str, signer: "Signer", seconds: float) -> HttpRequest:
        claim = dispatch.claim
        body = body_of(dispatch, self._settings.scheme)
        return HttpRequest(
            url=url,
            body=body,
            lines=[*self._fixed, *signer.lines(header_id(claim.idempotency_key), int(self._clock.wall()), body)],
            timeout_seconds=seconds,
            guard=self._guard if claim.address else None,
        )

    async def aclose(self) -> None:
        """Connections belong to the shared client."""

    def _judge(self, answer: Reply) -> Outcome:
        if not isinstance(answer, HttpAnswer):
            return unanswered(answer)
        if answer.ok:
            return Sent()
        error = f"HTTP {answer.status} {answer.excerpt()}".strip()
        retry_after = parse_retry_after(answer.headers.get("retry-after"), self._clock.wall())
        if answer.status == _TOO_MANY:
            return Throttled(error, retry_after=retry_after)
        # The older contract (x-webhook) has only two answers: 2xx, and retry.
        if self._settings.scheme == "standard":
            if answer.status == _GONE:
                return Refused(error, classification="endpoint_gone", recipient_gone=True)
            if _FIRST_REDIRECT <= answer.status <= _LAST_REDIRECT:
                return Refused(error, classification="redirect")
        # Endpoints answer 404 or 401 while they are deployed: retry every other failure.
        return Unavailable(error, classification=f"http_{answer.status}", retry_after=retry_after)


def _fulfil(done: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    if not done.done():
        done.set_result(outcome)


def _nothing() -> None:
    """Cancels a call that has already ended."""


class _Standard:
    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._keys = [SigningKey(secret) for secret in secrets]

    def lines(self, message: str, stamp: int, body: bytes) -> tuple[str, ...]:
        signature = sign_standard(self._keys, message, stamp, body)
        return f"webhook-id: {message}", f"webhook-timestamp: {stamp}", f"webhook-signature: {signature}"


class _XWebhook:
    def __init__(self, secrets: Sequence[Secret]) -> None:
        self._newest = secrets[0]

    def lines(self, message: str, stamp: int, body: bytes) -> tuple[str, ...]:
        return (
            f"X-Webhook-Event-ID: {message}",
            f"X-Webhook-Timestamp: {stamp}",
            f"X-Webhook-Signature: {sign_x_webhook(self._newest, stamp, body)}",
        )


Signer: TypeAlias = _Standard | _XWebhook


def body_of(dispatch: Dispatch, scheme: str) -> bytes:
    """The body, the same for every attempt of this message: nothing in it depends on the time of sending."""
    claim = dispatch.claim
    if scheme == "x-webhook":
        return canonical(msgspec.json.decode(claim.payload_json)).encode()
    # `message` is beside the payload, as a producer may have a `message` inside it. The payload is JSON already.
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


def _signer(settings: Settings, secrets: Sequence[Secret]) -> Signer:
    if not secrets:
        raise ValueError("endpoints: an endpoint needs at least one secret")
    return _Standard(secrets) if settings.scheme == "standard" else _XWebhook(secrets)


def _check_headers(headers: dict[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"headers: {name[:100]!r} or its value has a forbidden character")
        if _OURS.fullmatch(name):
            raise ValueError(f"headers: {name!r} is set by Carillon")


def create(name: str, settings: Settings, tools: Tools) -> Webhook:
    if not settings.secrets and not settings.endpoints:
        raise ValueError("secrets: at least one secret is needed to sign with")
    return Webhook(name, settings, tools, EgressGuard(settings.rules(tools.own_addresses)))
