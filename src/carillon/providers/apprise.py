"""All services of the Apprise library as one provider; needs the extra `apprise`."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Annotated
from urllib.parse import quote

import apprise
import msgspec

from carillon.domain.claims import Claim, Dispatch
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Refused, Sent, Unavailable, Unknown
from carillon.providers import Tools
from carillon.providers.tools import Secret

CHANNELS = None
TELLS: frozenset[str] = frozenset()
"""Nothing comes back."""
_PLACEHOLDER = "{address}"


class Settings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which Apprise URL a route uses."""

    url: Secret | None = None
    """An Apprise URL; the route's address, percent-encoded, replaces `{address}` in it."""
    recipient_schemes: list[str] = []
    """Schemes that a route's own address may have. Apprise connects by itself, without the egress rules: allow only
    schemes whose host is the vendor's, never json, xml or form."""
    threads: Annotated[int, msgspec.Meta(ge=1, le=100)] = 8


class Apprise:
    """Calls Apprise in a thread, as Apprise blocks."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self._settings = settings
        self.calls_at_once = settings.threads
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix=f"apprise-{name}")

    async def send(self, dispatch: Dispatch) -> Outcome:
        message = dispatch.message
        url = self._url_for(dispatch.claim)
        target = None if url is None else _target(url, dispatch.timeout_seconds)
        if message is None or target is None:
            return Refused("the route has no Apprise URL that may be used, or no message", classification="no_target")
        # The future of the thread pool, not asyncio's: only it knows whether the call has begun.
        call = self._threads.submit(copy_context().run, _notify, target, message)
        try:
            async with asyncio.timeout(dispatch.timeout_seconds):
                done = await asyncio.wrap_future(call)
        except TimeoutError:
            return _unfinished(call, dispatch.timeout_seconds)
        # Apprise returns only true or false; its log has the vendor's error.
        return Sent() if done else Unavailable("Apprise could not deliver", classification="apprise_failed")

    async def aclose(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _url_for(self, claim: Claim) -> str | None:
        own = self._settings.url
        if own is not None:
            url = own.reveal()
            if _PLACEHOLDER not in url:
                return url
            return url.replace(_PLACEHOLDER, quote(claim.address, safe="")) if claim.address else None
        scheme, separator, _ = (claim.address or "").partition("://")
        return claim.address if separator and scheme.lower() in self._settings.recipient_schemes else None


def _target(url: str, timeout_seconds: float) -> apprise.NotifyBase | None:
    asset = apprise.AppriseAsset(async_mode=False, secure_logging=True)
    target = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if target is not None:
        target.redirects = False
        # Our own timeout comes first; these end the thread of a call that we no longer wait for.
        target.socket_connect_timeout = target.socket_read_timeout = timeout_seconds + 1.0
    return target


def _notify(target: apprise.NotifyBase, message: Message) -> bool:
    try:
        return bool(target.notify(body=message.text, title=message.subject or ""))
    except Exception:  # noqa: BLE001 - Apprise has a hundred plugins, and none of them may end a worker
        return False


def _unfinished(call: Future[bool], timeout_seconds: float) -> Outcome:
    error = f"no answer within {timeout_seconds:g} s"
    if call.cancel():
        return Unavailable(error, classification="timeout")
    return Unknown(error, classification="timeout")


def create(name: str, settings: Settings, tools: Tools) -> Apprise:  # noqa: ARG001 - the signature that every kind has
    if settings.url is None and not settings.recipient_schemes:
        raise ValueError("url: an Apprise URL is needed, or recipient_schemes")
    if settings.url is not None and _target(settings.url.reveal().replace(_PLACEHOLDER, "x"), 1.0) is None:
        raise ValueError("url: Apprise does not understand this URL")
    return Apprise(name, settings)
