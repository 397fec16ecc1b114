"""Vendors' callbacks: each proves its sender and is committed before the answer; receipts without a message wait."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from carillon.border import clean_text
from carillon.domain.decide import following
from carillon.domain.errors import Forged, LedgerUnavailable
from carillon.domain.events import CallbackRefused, NotificationStopped, ReceiptTaken, Trouble
from carillon.domain.gate_events import address_suppressed
from carillon.domain.policy import Backoff
from carillon.domain.ports import Clock, Observer, ReceiptLedger, ReceiptReader
from carillon.domain.receipts import (
    NO_RECEIPT,
    Callback,
    CallbackReading,
    OverdueReceipt,
    Receipt,
    ReceiptKind,
    ReceiptRules,
    TakenReceipt,
)
from carillon.domain.timing import REACHED
from carillon.web import PROOF, Answer, Endpoint, Problem, RawBody, Reply, Request

_BACKOFF = Backoff(base_delay_seconds=0.5, max_delay_seconds=5.0, jitter="none")
_BATCH = 500


async def _at_intervals(apply: Callable[[], Awaitable[None]], seconds: float, observe: Observer, clock: Clock) -> None:
    """Apply again and again; while the ledger is away the pauses grow."""
    failures = 0
    while True:
        try:
            await apply()
        except LedgerUnavailable as error:
            failures += 1
            wait = _BACKOFF.delay(failures, 0.0)
            observe(Trouble(where="receipts", error=str(error), retry_in_seconds=wait))
        else:
            failures, wait = 0, seconds
        await clock.sleep(wait)


class WaitingReceipts:
    """Applies waiting receipts at an interval: a vendor may report before our settlement is committed."""

    def __init__(
        self, ledger: ReceiptLedger, rules: ReceiptRules, observer: Observer, clock: Clock, interval_seconds: float
    ) -> None:
        self._ledger = ledger
        self._rules = rules
        self._observe = observer
        self._clock = clock
        self._interval = interval_seconds

    async def run(self) -> None:
        """Apply until cancelled."""
        await _at_intervals(self.apply, self._interval, self._observe, self._clock)

    async def apply(self) -> None:
        """Apply every waiting receipt whose message the ledger knows by now."""
        while True:
            taken = await self._ledger.take_waiting_receipts(self._rules, _BATCH)
            observe_receipts(taken, self._observe)
            if len(taken) < _BATCH:
                return


class OverdueReceipts:
    """Counts a message whose delivery report does not come in time as not delivered; the next provider is asked.

    The report's key names the route alone: a route fails over for a missing report at most once.
    """

    def __init__(
        self,
        ledger: ReceiptLedger,
        rules: ReceiptRules,
        deadlines: Mapping[str, float],
        *,
        observer: Observer,
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._ledger = ledger
        self._rules = rules
        self._deadlines = deadlines
        self._observe = observer
        self._clock = clock
        self._interval = interval_seconds

    async def run(self) -> None:
        """Apply until cancelled."""
        await _at_intervals(self.apply, self._interval, self._observe, self._clock)

    async def apply(self) -> None:
        """Give up every report that is overdue."""
        while True:
            overdue = await self._ledger.overdue_receipts(_BATCH)
            # A process that dies in between finds them again; the reports have keys, so that each counts once.
            missing = [self._missing(one) for one in overdue if one.sent and self._may_go_on(one)]
            observe_receipts(await self._ledger.take_receipts(missing, self._rules), self._observe)
            await self._ledger.give_up_receipts(overdue)
            if len(overdue) < _BATCH:
                return

    def _may_go_on(self, one: OverdueReceipt) -> bool:
        """Whether the channel has another provider: the last one's message is not called back, nor sent again."""
        return following(self._rules.chains.get(one.channel, ()), one.provider) is not None

    def _missing(self, one: OverdueReceipt) -> Receipt:
        key = f"{one.notification_id}/{one.route_id}"
        seconds = self._deadlines.get(one.provider)
        within = "in time" if seconds is None else f"within {seconds:g} s"
        return Receipt(
            provider=one.provider,
            kind=ReceiptKind.FAILED,
            provider_message_id=one.provider_message_id,
            idempotency_key=key,
            event_id=f"no_receipt:{key}",
            classification=NO_RECEIPT,
            reason=f"{one.provider} reported no delivery {within}",
        )


def observe_receipts(taken: Iterable[TakenReceipt], observer: Observer) -> None:
    """Emit one event for each receipt, with its effect; an event holds no address."""
    for each in taken:
        receipt = each.receipt
        observer(
            ReceiptTaken(
                provider=receipt.provider,
                kind=str(receipt.kind),
                effect=str(each.effect),
                provider_message_id=receipt.provider_message_id,
                notification_id=each.notification_id,
                route_id=each.route_id,
                classification=receipt.classification,
                reason=receipt.reason,
            )
        )
        for gone in each.reached:
            observer(NotificationStopped(notification_id=gone.notification_id, gate=REACHED, reason=gone.because))
        if each.suppression is not None:
            observer(address_suppressed(each.suppression, receipt.provider, each.notification_id, each.route_id))


_SHOWN = 5


LONGEST_REASON = 2000
LAST_MOMENT_MS = 253_402_300_799_999
"""The end of the year 9999."""
_LONGEST = {
    "provider_message_id": 1000,
    "idempotency_key": 1000,
    "event_id": 1000,
    "address": 2000,
    "classification": 200,
    "reason": LONGEST_REASON,
}
"""The texts of a receipt, each with its longest length."""


def endpoints(
    callbacks: Mapping[str, Callback],
    readers: Mapping[str, Sequence[ReceiptReader]],
    ledger: ReceiptLedger,
    rules: ReceiptRules,
    observer: Observer,
    *,
    trust_forwarded: bool = False,
) -> list[Endpoint]:
    """One endpoint for each kind of provider that has readers; a callback needs no token."""
    return [
        Endpoint(
            method="POST",
            path=callback.path,
            call=_Receiver(
                kind,
                readers[kind],
                ledger,
                rules,
                observer,
                trust_forwarded=trust_forwarded,
            ).take,
            name=callback.name,
            summary=callback.summary,
            description="Carries the vendor's own proof instead of a token. A repeated callback changes nothing.",
            tag="Callbacks",
            answers=(Answer(status=200, description="Written down; empty, but for a handshake"),),
            problems=("CALLBACK_REFUSED", "PAYLOAD_TOO_LARGE", "REQUEST_TIMEOUT", "VALIDATION_ERROR"),
            about=PROOF,
            raw=RawBody(limit=callback.max_bytes, media_types=callback.media_types),
        )
        for kind, callback in callbacks.items()
    ]


class _Receiver:
    def __init__(
        self,
        kind: str,
        readers: Sequence[ReceiptReader],
        ledger: ReceiptLedger,
        rules: ReceiptRules,
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
        url = called_url(request, trust_forwarded=self._trust_forwarded)
        reading = self._read(url, _headers(request), request.body)
        for reason in reading.unread[:_SHOWN]:
            self._observe(CallbackRefused(vendor=self._kind, reason=reason))
        # While the ledger is away the answer is 503 and nothing is written: the vendor repeats the callback.
        observe_receipts(await self._ledger.take_receipts(reading.receipts, self._rules), self._observe)
        if reading.answer is not None:
            return Reply(200, reading.answer)
        return Reply(200, b"", media_type="text/plain")

    def _read(self, url: str, headers: dict[str, str], body: bytes) -> CallbackReading:
        # Two accounts of one vendor share the endpoint: the first reader that accepts the proof reads it.
        reason = ""
        for reader in self._readers:
            try:
                return clean_reading(reader.read(url, headers, body))
            except Forged as error:
                reason = str(error)
        # The event names neither the URL nor the headers: they carry the vendor's proof.
        self._observe(CallbackRefused(vendor=self._kind, reason=reason, forged=True))
        raise Problem("CALLBACK_REFUSED", "the callback does not prove who sent it")


def clean_reading(reading: CallbackReading) -> CallbackReading:
    """Bounded texts that every store can hold, so that the ledger looks up what it also writes."""
    return msgspec.structs.replace(
        reading,
        receipts=tuple(_clean_receipt(receipt) for receipt in reading.receipts),
        unread=tuple(clean_text(reason, LONGEST_REASON) for reason in reading.unread),
    )


def _clean_receipt(receipt: Receipt) -> Receipt:
    given = {name: getattr(receipt, name) for name in _LONGEST}
    clean = {name: clean_text(text, _LONGEST[name]) for name, text in given.items() if text is not None}
    moment = receipt.occurred_at_ms
    return msgspec.structs.replace(
        receipt, **clean, occurred_at_ms=None if moment is None or not 0 <= moment <= LAST_MOMENT_MS else moment
    )


def called_url(request: Request, *, trust_forwarded: bool) -> str:
    """The URL that the vendor called, from the request or from a trusted proxy's headers."""
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
    # Of several values, the first is from the proxy nearest to the vendor.
    return (request.header(name) or "").partition(",")[0].strip()


def _headers(request: Request) -> dict[str, str]:
    """The headers that occur once: of two signatures it is unclear which one counts."""
    pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in request.scope["headers"]]
    times = Counter(name for name, _ in pairs)
    return {name: value for name, value in pairs if times[name] == 1}
