"""The codec of the ledger's columns: every sealed column is sealed here on its way in and opened on its way out."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from carillon.domain.claims import Claim, Settlement
from carillon.domain.notifications import Enrolment, Route
from carillon.domain.receipts import Receipt
from carillon.domain.store import Row, Values
from carillon.domain.verdicts import Bury
from carillon.ledger.columns import Way, opened_names, resealed, sealed_names
from carillon.ledger.seals import Seals

Again: TypeAlias = Callable[[str | None, str | None], tuple[str | None, str | None]]
"""The first and the second sealed column of a row, sealed anew."""

TABLES = ("suppressions", "receipts", "routes", "records", "preferences")
"""Sealed anew in this order: a suppressed address is found again before anything else."""
HIDDEN = "(sealed)"
_USER = "user:"
_SHORTEST = 5
_CLAIMED = ("address", "payload_json", "message_json", "metadata_json")
_WRAP = "sealed"
_PERSONAL = re.compile(r"@|\d(?:\D?\d){5}")
"""What may be an address: an @, or six digits that stand close together."""


class Codec:
    """Without keys it changes nothing and costs one look."""

    def __init__(self, seals: Seals | None = None) -> None:
        self.seals = seals
        self._sealed = sealed_names()
        self._opened = opened_names()

    def bind(self, values: Values) -> Values:
        """Parameters of a statement: those that bear the name of a sealed column are sealed."""
        if self.seals is None or not (self._sealed.keys() & values.keys()):
            return values
        return {name: self._seal(self.seals, name, value) for name, value in values.items()}

    def row(self, row: Row) -> Row:
        """A row of the database: columns that are sealed are opened."""
        if self.seals is None:
            return row
        return {name: self._open(self.seals, name, value) for name, value in row.items()}

    def fields(self, names: Sequence[str], values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values of a row shape, whose fields bear the names of their columns."""
        if self.seals is None:
            return values
        return tuple(self._seal(self.seals, name, value) for name, value in zip(names, values, strict=True))

    def address(self, address: str | None) -> str | None:
        """An address to compare with, as its column holds it."""
        return address if self.seals is None else self._seal(self.seals, "address", address)

    def claims(self, claims: list[Claim]) -> list[Claim]:
        """Claims as they come from the database, opened in place."""
        if self.seals is not None:
            for claim in claims:
                for name in _CLAIMED:
                    setattr(claim, name, self._open(self.seals, name, getattr(claim, name)))
        return claims

    def named(self, batch: Sequence[Enrolment]) -> Sequence[Enrolment]:
        """Routes of people who are known by an address alone get another name."""
        seals = self.seals
        if seals is None:
            return batch
        return [Enrolment(each.notification, tuple(_named(seals, route) for route in each.routes)) for each in batch]

    def settlement(self, settlement: Settlement) -> Settlement:
        """Vendors repeat the address in their errors."""
        if self.seals is None:
            return settlement
        address, note, verdict = settlement.claim.address, settlement.note, settlement.verdict
        if note is not None and note.error is not None:
            note = replace(note, error=_without(note.error, address))
        if isinstance(verdict, Bury):
            verdict = replace(verdict, reason=_without(verdict.reason, address))
        return replace(settlement, note=note, verdict=verdict)

    def receipt(self, receipt: Receipt) -> Receipt:
        """Vendors repeat the address in their reports."""
        return receipt if self.seals is None else replace(receipt, reason=self.text(receipt.reason, receipt.address))

    def text(self, text: str | None, *about: str | None) -> str | None:
        """What was said about a message, without the addresses that it is about."""
        if self.seals is not None:
            for address in about:
                text = _without(text, address)
        return text

    def refusal(self, text: str, raw: object) -> str:
        """What was said about a message that was refused, without the addresses in the message."""
        return self.text(text, *_personal(raw)) or ""

    def _seal(self, seals: Seals, name: str, value: Any) -> Any:  # noqa: ANN401 - whatever a column holds
        match self._sealed.get(name):
            case Way.ADDRESS:
                return seals.address(value)
            case Way.CONTENT:
                return seals.content(value)
            case Way.CONTACTS:
                return _contacts(value, seals.content)
            case Way.RAW:
                return json.dumps({_WRAP: seals.content(value)})
            case _:
                return value

    def _open(self, seals: Seals, name: str, value: Any) -> Any:  # noqa: ANN401 - whatever a column holds
        if name not in self._opened or not isinstance(value, str):
            return value
        match self._opened[name]:
            case Way.CONTACTS:
                return _contacts(value, seals.open)
            case Way.RAW:
                return _unwrapped(value, seals)
            case _:
                return seals.open(value)


def again(seals: Seals, table: str) -> Again:
    """How rows of this table are sealed anew; a table with one sealed column has no second."""
    ways: Mapping[Way, Callable[[str | None], str | None]] = {
        Way.ADDRESS: lambda text: seals.address(seals.open(text)),
        Way.CONTENT: lambda text: seals.content(seals.open(text)),
        Way.CONTACTS: lambda text: _contacts(text or "{}", lambda value: seals.content(seals.open(value))),
    }
    first, second = (ways[way] for way in (*resealed(table), Way.CONTENT)[:2])
    return lambda one, two: (first(one), second(two))


def _contacts(text: str, change: Callable[[str | None], str | None]) -> str:
    known: Mapping[str, str | None] = json.loads(text)
    return json.dumps({kind: change(value) for kind, value in known.items()})


def _unwrapped(text: str, seals: Seals) -> str:
    found = json.loads(text)
    return (seals.open(found[_WRAP]) or "") if isinstance(found, dict) and found.keys() == {_WRAP} else text


def _named(seals: Seals, route: Route) -> Route:
    address, ref = route.address, route.recipient_ref
    if not address or not ref.endswith(address) or ref.startswith(_USER):
        return route
    # Within the notification any other name does as well.
    name = ref.removesuffix(address) + seals.name(address)
    return replace(route, route_id=f"{route.channel}:{name}", recipient_ref=name)


def _without(text: str | None, address: str | None) -> str | None:
    """However it is spelled; what is too short to be somebody's address would only take the text apart."""
    named = (address or "").lstrip("+")
    if not text or len(named) < _SHORTEST:
        return text
    return re.sub(re.escape(named), HIDDEN, text, flags=re.IGNORECASE)


def _personal(raw: object) -> list[str]:
    match raw:
        case str():
            return [raw] if _PERSONAL.search(raw) else []
        case bytes():
            return _personal(raw.decode("utf-8", "replace"))
        case Mapping():
            return [found for value in raw.values() for found in _personal(value)]
        case list() | tuple():
            return [found for value in raw for found in _personal(value)]
        case _:
            return []
