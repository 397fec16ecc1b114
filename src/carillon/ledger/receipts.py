"""Receipts as rows, and the routes that they change, the same for every engine."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from carillon.domain.notifications import Status
from carillon.domain.receipts import (
    ChangingRoute,
    Effect,
    Receipt,
    ReceiptKind,
    ReceiptRules,
    SkippedByGoal,
    TakenReceipt,
    about_copy,
    apply_receipt,
    suppression_for,
)
from carillon.domain.suppressions import Suppression, kind_of_refusal
from carillon.ledger.rows import storable
from carillon.ledger.sealing import Codec

WAITING_SECONDS = 600.0
"""How long a receipt waits until its message is settled here."""
_LONGEST_KEY = 300

RECEIPT_FIELDS = (
    "receipt_key",
    "provider",
    "kind",
    "provider_message_id",
    "idempotency_key",
    "address",
    "classification",
    "reason",
    "recipient_gone",
    "occurred_at_ms",
)
"""The fields of a receipt's row, without its times and its effect."""
ROUTE_FIELDS = (
    "notification_id",
    "route_id",
    "status",
    "lane",
    "provider",
    "provider_since",
    "provider_message_id",
    "max_attempts",
    "receipt",
    "delivered",
    "opened",
    "clicked",
    "finished",
    "reopened",
    "buried",
    "error_classification",
    "error_message",
)
"""The fields of a changed route."""


class _Copies(msgspec.Struct, frozen=True, rename="camel"):
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class _Copied(msgspec.Struct):
    """Of a message, the copies alone: its files are passed over."""

    mail: _Copies = _Copies()


_read_copied = msgspec.json.Decoder(_Copied).decode
RouteKey = tuple[str, str]


class ReceiptRow(NamedTuple):
    """A receipt and the key of its row."""

    key: str
    receipt: Receipt
    expired: bool = False
    """The receipt's waiting time is over."""


class RouteMatch(NamedTuple):
    """The route that a receipt is about."""

    route: RouteKey
    known: bool
    """The route has sent the message that the receipt names."""


def receipt_key(receipt: Receipt) -> str:
    """The vendor's id of the report, else a digest of the report's content."""
    said = receipt.event_id
    if said is not None and len(said) <= _LONGEST_KEY:
        return storable(f"{receipt.provider}/{said}") or ""
    parts = [receipt.provider, said or receipt.provider_message_id or receipt.idempotency_key or ""]
    parts += [str(receipt.kind), receipt.classification or ""]
    return (
        f"{receipt.provider}/sha256:{hashlib.sha256(msgspec.json.encode([_valid(part) for part in parts])).hexdigest()}"
    )


def receipt_values(row: ReceiptRow, codec: Codec) -> tuple[Any, ...]:
    """The values of `RECEIPT_FIELDS`."""
    receipt = row.receipt
    values = (
        row.key,
        receipt.provider,
        str(receipt.kind),
        storable(receipt.provider_message_id),
        storable(receipt.idempotency_key),
        storable(receipt.address),
        storable(receipt.classification),
        storable(receipt.reason),
        receipt.recipient_gone,
        receipt.occurred_at_ms,
    )
    return codec.fields(RECEIPT_FIELDS, values)


def rows_of(receipts: Sequence[Receipt]) -> dict[str, ReceiptRow]:
    """Each report once, sorted, so that two batches lock common rows in the same order."""
    found: dict[str, ReceiptRow] = {}
    for receipt in receipts:
        key = receipt_key(receipt)
        found.setdefault(key, ReceiptRow(key, receipt))
    return dict(sorted(found.items()))


def answers(receipts: Sequence[Receipt], found: Mapping[str, TakenReceipt]) -> list[TakenReceipt]:
    """One answer per receipt, in order; if a report comes twice in a batch, the first one counts."""
    left = dict(found)
    keys = [receipt_key(receipt) for receipt in receipts]
    return [
        replace(left.pop(key), receipt=receipt)
        if key in left
        else TakenReceipt(receipt=receipt, effect=Effect.REPEATED)
        for key, receipt in zip(keys, receipts, strict=True)
    ]


def read_row(row: Mapping[str, Any]) -> ReceiptRow:
    """A stored receipt."""
    receipt = Receipt(
        provider=row["provider"],
        kind=ReceiptKind(row["kind"]),
        provider_message_id=row["provider_message_id"],
        idempotency_key=row["idempotency_key"],
        address=row["address"],
        classification=row["classification"],
        reason=row["reason"],
        recipient_gone=bool(row["recipient_gone"]),
    )
    return ReceiptRow(row["receipt_key"], receipt, bool(row["expired"]))


def our_key(receipt: Receipt) -> RouteKey | None:
    """The notification and the route that the receipt names; the route may be empty."""
    notification_id, slash, route_id = (storable(receipt.idempotency_key) or "").partition("/")
    return (notification_id, route_id) if notification_id and slash else None


def read_route(row: Mapping[str, Any]) -> ChangingRoute:
    """A route from its row."""
    return ChangingRoute(
        notification_id=row["notification_id"],
        route_id=row["route_id"],
        channel=row["channel"],
        lane=row["lane"],
        policy=row["policy"],
        provider=row["provider"],
        provider_message_id=row["provider_message_id"],
        status=Status(row["status"]),
        attempt_count=row["attempt_count"],
        max_attempts=row["max_attempts"],
        provider_since=row["provider_since"],
        held=bool(row["held"]),
        receipt=row["receipt"],
        delivered=bool(row["delivered"]),
        address=row["address"],
        tenant_id=row["tenant_id"],
        user_id=row["user_id"],
        copies=_copies(row.get("message_json")),
        goal=row["goal"],
    )


def _copies(message_json: str | None) -> tuple[str, ...]:
    if message_json is None or '"mail":{' not in message_json:
        return ()
    mail = _read_copied(message_json).mail
    return (*mail.cc, *mail.bcc, *mail.left_out)


def route_values(route: ChangingRoute, codec: Codec) -> tuple[Any, ...]:
    """The values of `ROUTE_FIELDS`."""
    said = {
        "error_classification": storable(route.error_classification),
        "error_message": storable(codec.text(route.error_message, route.address)),
    }
    return tuple(said[name] if name in said else getattr(route, name) for name in ROUTE_FIELDS)


def found_routes(
    rows: Sequence[ReceiptRow], sent: Mapping[int, RouteKey], meant: Mapping[int, str]
) -> dict[str, RouteMatch]:
    """The route of each receipt: the one that the receipt names, else the one that sent its message."""
    found: dict[str, RouteMatch] = {}
    for place, row in enumerate(rows):
        key = our_key(row.receipt)
        by_message = sent.get(place)
        if key is not None and key[1]:
            found[row.key] = RouteMatch(key, known=key == by_message)
        elif by_message is not None:
            found[row.key] = RouteMatch(by_message, known=True)
        elif key is not None and place in meant:
            found[row.key] = RouteMatch((key[0], meant[place]), known=False)
    return found


class ReceiptBatch:
    """One batch of receipts, applied in order to locked routes."""

    def __init__(
        self, rules: ReceiptRules, routes: Iterable[Mapping[str, Any]], strikes: Iterable[Mapping[str, Any]]
    ) -> None:
        """`strikes` is the number of earlier reports that an address is dead, by address and tenant."""
        self._rules = rules
        self._routes = {(row["notification_id"], row["route_id"]): read_route(row) for row in routes}
        self._strikes: Counter[tuple[str, str]] = Counter()
        for row in strikes:
            self._strikes[row["address"], row["tenant_id"] or ""] += row["strikes"]
        self.taken: dict[str, TakenReceipt] = {}
        self.suppressions: list[Suppression] = []
        self.unsubscribed: set[tuple[str, str, str]] = set()
        """Tenant, user and channel."""

    @property
    def changed(self) -> list[ChangingRoute]:
        return [route for _, route in sorted(self._routes.items()) if route.changed]

    def apply(self, row: ReceiptRow, finding: RouteMatch | None) -> None:
        """Apply one receipt; without a route, the receipt waits until its waiting time is over."""
        receipt = row.receipt
        route = None if finding is None else self._routes.get(finding.route)
        if finding is None or route is None:
            effect = Effect.IGNORED if row.expired else Effect.WAITING
            self.taken[row.key] = TakenReceipt(receipt=receipt, effect=effect)
            return
        copy = about_copy(receipt, route)
        if copy:
            # The report says nothing about the recipient: only the address of the copy may be suppressed.
            route = replace(route, address=_copy(receipt), user_id=None)
        strikes = self._struck(receipt, route)
        named = receipt.provider_message_id
        known = finding.known or (named is not None and named == route.provider_message_id)
        asked = suppression_for(receipt, route, self._rules, strikes)
        effect = Effect.NOTED if copy else apply_receipt(receipt, route, self._rules, known=known, strikes=strikes)
        if effect is Effect.WAITING and row.expired:
            effect = Effect.IGNORED
        if effect is not Effect.WAITING and asked is not None:
            self.suppressions.append(asked)
        # A notification to a bare address may have a user, who is not the one who has unsubscribed.
        theirs = route.user_id is not None and route.route_id.startswith(f"{route.channel}:user:")
        if receipt.kind is ReceiptKind.UNSUBSCRIBED and route.user_id is not None and theirs:
            self.unsubscribed.add((route.tenant_id or "", route.user_id, route.channel))
        self.taken[row.key] = TakenReceipt(
            receipt=receipt,
            effect=effect,
            notification_id=route.notification_id,
            route_id=route.route_id,
            tenant_id=route.tenant_id,
            user_id=route.user_id,
            suppression=None if effect is Effect.WAITING else asked,
        )

    @property
    def chains(self) -> set[str]:
        """The notifications with a changed route in a chain."""
        return {route.notification_id for route in self.changed if route.goal is not None}

    def note_reached(self, skipped: Iterable[Mapping[str, Any]]) -> None:
        """Note the routes that are skipped because a receipt of this batch reached the goal of their chain."""
        because: dict[str, list[SkippedByGoal]] = {}
        for row in skipped:
            gone = SkippedByGoal(row["notification_id"], row["route_id"], row["channel"], row["because"])
            because.setdefault(gone.notification_id, []).append(gone)
        for key, taken in self.taken.items():
            found = because.pop(taken.notification_id or "", None)
            if found is not None:
                self.taken[key] = replace(taken, reached=tuple(found))

    def effects(self, codec: Codec) -> list[tuple[Any, ...]]:
        """Key, effect, route and address of every receipt that no longer waits, in the order of the keys."""
        return [
            (key, str(taken.effect), taken.notification_id, taken.route_id, codec.address(self._address(taken)))
            for key, taken in sorted(self.taken.items())
            if taken.effect != Effect.WAITING
        ]

    def _address(self, taken: TakenReceipt) -> str | None:
        """The address in our spelling, so that all reports of one address count together."""
        route = self._routes.get((taken.notification_id or "", taken.route_id or ""))
        if route is not None and about_copy(taken.receipt, route):
            return _copy(taken.receipt)
        return (route.address if route else None) or storable(taken.receipt.address)

    def _struck(self, receipt: Receipt, route: ChangingRoute) -> int:
        if not receipt.recipient_gone:
            return 0
        address, terms = route.address or receipt.address or "", self._rules.suppressions
        self._strikes[address, route.tenant_id or ""] += 1
        kind = kind_of_refusal(route.channel, receipt.classification)
        if terms.is_shared(kind):
            return sum(count for (struck, _), count in self._strikes.items() if struck == address)
        return self._strikes[address, route.tenant_id or ""]


def struck_addresses(gone: Iterable[ReceiptRow], routes: Iterable[Mapping[str, Any]]) -> set[str | None]:
    """The addresses whose earlier reports count: of routes, of reports, and of copies as they are written down."""
    receipts = [row.receipt for row in gone]
    spelled = {receipt.address for receipt in receipts} | {_copy(receipt) for receipt in receipts}
    return {row["address"] for row in routes} | spelled


def _copy(receipt: Receipt) -> str | None:
    """The address of a copy; in small letters, because a route knows only the spelling of its recipient."""
    return storable((receipt.address or "").strip().lower())


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
