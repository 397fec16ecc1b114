"""Where vendors report back: believed by their own proof, written down before they are thanked."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from carillon.domain.errors import Forged
from carillon.domain.events import CallbackRefused
from carillon.domain.ports import Observer, ReceiptLedger, ReceiptReader
from carillon.domain.receipts import AmendRules, Reading
from carillon.receipts.telling import tell
from carillon.web import Answer, Endpoint, Problem, Reply, Request

_PATH = "/api/v1/webhooks"
_KIB = 1024
_SHOWN = 5


class Vendor(msgspec.Struct, frozen=True):
    """One kind of callback: where it comes to and how large it may be."""

    path: str
    name: str
    summary: str
    limit: int


VENDORS = {
    "twilio": Vendor(f"{_PATH}/twilio/sms-status", "twilioSmsStatus", "Twilio reports a text message", 64 * _KIB),
    "sendgrid": Vendor(f"{_PATH}/sendgrid/events", "sendgridEvents", "SendGrid reports events of mails", 1024 * _KIB),
    "fcm": Vendor(f"{_PATH}/fcm/delivery-status", "fcmDeliveryStatus", "A relay reports pushes", 256 * _KIB),
    "acs": Vendor(f"{_PATH}/azure/email-events", "azureEmailEvents", "Event Grid reports mails of Azure", 1024 * _KIB),
}
"""By the kind of provider."""


def endpoints(
    readers: Mapping[str, Sequence[ReceiptReader]],
    ledger: ReceiptLedger,
    rules: AmendRules,
    observer: Observer,
    *,
    trust_forwarded: bool = False,
) -> list[Endpoint]:
    """One endpoint for each kind of provider that somebody can read; no token is asked for."""
    return [
        Endpoint(
            method="POST",
            path=vendor.path,
            call=_Callback(kind, readers[kind], ledger, rules, observer, trust_forwarded=trust_forwarded).take,
            name=vendor.name,
            summary=vendor.summary,
            description="Carries the vendor's own proof instead of a token. What was taken before is taken again.",
            tag="Callbacks",
            answers=(Answer(status=200, description="Written down; empty, but for a handshake"),),
            problems=("CALLBACK_REFUSED", "PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT", "VALIDATION_ERROR"),
            guarded=False,
        )
        for kind, vendor in VENDORS.items()
        if readers.get(kind)
    ]


class _Callback:
    def __init__(
        self,
        kind: str,
        readers: Sequence[ReceiptReader],
        ledger: ReceiptLedger,
        rules: AmendRules,
        observer: Observer,
        *,
        trust_forwarded: bool,
    ) -> None:
        self._kind = kind
        self._readers = readers
        self._ledger = ledger
        self._rules = rules
        self._observe = observer
        self._trust_forwarded = trust_forwarded

    async def take(self, request: Request) -> Reply:
        body = await request.raw(VENDORS[self._kind].limit)
        reading = self._read(called_url(request, trust_forwarded=self._trust_forwarded), _headers(request), body)
        for reason in reading.unread[:_SHOWN]:
            self._observe(CallbackRefused(vendor=self._kind, reason=reason))
        # What the ledger cannot take now is answered 503 with nothing written: the vendor comes again.
        tell(await self._ledger.amend(reading.receipts, self._rules), self._observe)
        if reading.answer is not None:
            return Reply(200, reading.answer)
        return Reply(200, b"", media_type="text/plain")

    def _read(self, url: str, headers: dict[str, str], body: bytes) -> Reading:
        # Two accounts of one vendor share the endpoint; whoever knows the secret is meant.
        reason = ""
        for reader in self._readers:
            try:
                return reader.read(url, headers, body)
            except Forged as error:
                reason = str(error)
        # Neither the URL nor the headers may be told: they carry what the vendor proves itself with.
        self._observe(CallbackRefused(vendor=self._kind, reason=reason, forged=True))
        raise Problem("CALLBACK_REFUSED", "the callback does not prove who sent it")


def called_url(request: Request, *, trust_forwarded: bool) -> str:
    """The URL that the vendor called, as far as the request or a trusted proxy tells."""
    scope: Mapping[str, Any] = request.scope
    scheme, host = str(scope.get("scheme", "http")), request.header(b"host") or ""
    if trust_forwarded:
        scheme = _first(request, b"x-forwarded-proto") or scheme
        host = _first(request, b"x-forwarded-host") or host
        port = _first(request, b"x-forwarded-port")
        if port and ":" not in host.rpartition("]")[2]:
            host = f"{host}:{port}"
    path = scope.get("raw_path", b"").decode("latin-1")
    query = scope["query_string"].decode("latin-1")
    return f"{scheme}://{host}{path}{'?' if query else ''}{query}"


def _first(request: Request, name: bytes) -> str:
    # The proxy nearest to the vendor wrote the first of several.
    return (request.header(name) or "").partition(",")[0].strip()


def _headers(request: Request) -> dict[str, str]:
    """Each header that was given once: of two signatures, nobody could say which is meant."""
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in request.scope["headers"]]
    times = Counter(name for name, _ in pairs)
    return {name: value for name, value in pairs if times[name] == 1}
