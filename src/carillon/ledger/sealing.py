"""Sealing of personal data: the ring of keys, the codec of sealed columns, and the change of the key."""

import base64
import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from carillon.domain.claims import Claim, Settlement
from carillon.domain.consent import bare_address
from carillon.domain.digests import DigestEntry, ThrottleEntry
from carillon.domain.errors import ConfigurationError
from carillon.domain.notifications import EVERYBODY, Collapse, Enrolment, Route
from carillon.domain.receipts import Receipt
from carillon.domain.store import Ask, Engine, Row, Steps, Values
from carillon.domain.verdicts import Bury
from carillon.ledger.columns import Way, opened_names, resealed, sealed_names

_MARK = "sealed"
_KEY_BYTES, _NONCE_BYTES = 32, 12


class _Key:
    """One key and the keys derived from it, one for each purpose."""

    def __init__(self, secret: bytes) -> None:
        self.key_id = _derived(secret, "id")[:4].hex()
        self.prefix = f"{_MARK}:{self.key_id}:"
        self._cipher = AESGCM(_derived(secret, "encryption"))
        self._nonces = _derived(secret, "nonces")

    def seal(self, text: str, nonce: bytes) -> str:
        box = nonce + self._cipher.encrypt(nonce, text.encode("utf-8", "surrogatepass"), None)
        return self.prefix + base64.urlsafe_b64encode(box).decode()

    def nonce_of(self, text: str) -> bytes:
        """The same for the same text; without the key it looks random."""
        return hmac.digest(self._nonces, text.encode("utf-8", "surrogatepass"), "sha256")[:_NONCE_BYTES]

    def open(self, sealed: str) -> str:
        box = base64.b64decode(sealed.removeprefix(self.prefix), altchars=b"-_", validate=True)
        return self._cipher.decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], None).decode("utf-8", "surrogatepass")


class Seals:
    """A ring of keys; unsealed text opens as it is, because it may be older than the keys."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        keys = [_Key(secret) for secret in secrets]
        self._first = keys[0]
        self._keys = {key.key_id: key for key in keys}
        self._blind = _derived(secrets[0], "names")

    @property
    def first(self) -> str:
        """The id of the key that seals."""
        return self._first.key_id

    @property
    def key_ids(self) -> frozenset[str]:
        return frozenset(self._keys)

    @property
    def pattern(self) -> str:
        """The LIKE pattern of values that are sealed with the first key."""
        return f"{self._first.prefix}%"

    def address(self, text: str | None) -> str | None:
        """Equal addresses have equal seals, because they are compared and unique."""
        return None if text is None else self._first.seal(text, self._first.nonce_of(text))

    def content(self, text: str | None) -> str | None:
        """A new nonce each time: equal contents have different seals."""
        return None if text is None else self._first.seal(text, os.urandom(_NONCE_BYTES))

    def name(self, address: str) -> str:
        """A name in place of an address, where nobody needs to read the address back."""
        return hmac.digest(self._blind, address.encode("utf-8", "surrogatepass"), "sha256")[:16].hex()

    def open(self, text: str | None) -> str | None:
        """A seal that cannot be opened stays as it is: providers refuse it as an address, and the route fails."""
        if text is None or not text.startswith(f"{_MARK}:"):
            return text
        key = self._keys.get(text[len(_MARK) + 1 :].partition(":")[0])
        try:
            return text if key is None else key.open(text)
        except (InvalidTag, ValueError):
            return text


def read_keys(texts: Sequence[str]) -> Seals | None:
    """The ring of base64 keys; None without keys."""
    secrets = [_decoded(number, text) for number, text in enumerate(texts, 1)]
    if len(set(secrets)) != len(secrets):
        raise ConfigurationError("ledger.seal_keys: the list contains a key twice")
    return Seals(secrets) if secrets else None


def _decoded(number: int, text: str) -> bytes:
    try:
        secret = base64.b64decode(text.strip().replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        secret = b""
    if len(secret) != _KEY_BYTES:
        raise ConfigurationError(
            f"ledger.seal_keys: key {number} is not {_KEY_BYTES} bytes in base64; `openssl rand -base64 32` makes one"
        )
    return secret


def _derived(secret: bytes, purpose: str) -> bytes:
    return hmac.digest(secret, f"carillon seal {purpose}".encode(), hashlib.sha256)


Again: TypeAlias = Callable[[str | None, str | None], tuple[str | None, str | None]]
"""Seals the first and the second sealed column of a row again."""

TABLES = ("suppressions", "receipts", "routes", "records", "preferences", "digests")
"""The order of resealing: suppressions first, so that a suppressed address is found again at once."""
OF_THE_API = ("receipts", "preferences", "digests")
"""Of these, the tables that a ledger without the part `api` does not have."""
HIDDEN = "(sealed)"
_LONGEST_ERROR = 4000
_USER = "user:"
_SHORTEST = 5
_CLAIMED = ("address", "payload_json", "message_json", "metadata_json")
_WRAP = "sealed"
_PERSONAL = re.compile(r"@|\d(?:\D?\d){5}")
"""Text that may be an address: an @, or six digits close together."""


class Codec:
    """Seals and opens the values of sealed columns; without keys it changes nothing and costs one comparison."""

    def __init__(self, seals: Seals | None = None) -> None:
        self.seals = seals
        self._sealed = sealed_names()
        self._opened = opened_names()

    def bind(self, values: Values) -> Values:
        """Seal the parameters that have the name of a sealed column."""
        if self.seals is None or not (self._sealed.keys() & values.keys()):
            return values
        return {name: self._seal(self.seals, name, value) for name, value in values.items()}

    def row(self, row: Row) -> Row:
        """Open the sealed columns of a row."""
        if self.seals is None:
            return row
        return {name: self._open(self.seals, name, value) for name, value in row.items()}

    def fields(self, names: Sequence[str], values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Seal the values of a row whose fields have the names of columns."""
        if self.seals is None:
            return values
        return tuple(self._seal(self.seals, name, value) for name, value in zip(names, values, strict=True))

    def address(self, address: str | None) -> str | None:
        """An address in the form of its column, for comparisons."""
        return address if self.seals is None else self._seal(self.seals, "address", address)

    def claims(self, claims: list[Claim]) -> list[Claim]:
        """Open claims from the database, in place."""
        if self.seals is not None:
            for claim in claims:
                for name in _CLAIMED:
                    setattr(claim, name, self._open(self.seals, name, getattr(claim, name)))
        return claims

    def person(self, person_id: str) -> str:
        """The id of a person in the form of its column: a bare address is sealed behind its kind."""
        return person_id if self.seals is None else _person(person_id, self.seals.address)

    def named(self, batch: Sequence[Enrolment]) -> Sequence[Enrolment]:
        """Rename the routes whose id contains an address."""
        seals = self.seals
        if seals is None:
            return batch
        return [
            replace(
                each,
                routes=tuple(_named(seals, route) for route in each.routes),
                collapse=_covered(seals, each),
                digests=_gathered(seals, each),
                throttles=_throttled(seals, each),
            )
            for each in batch
        ]

    def settlement(self, settlement: Settlement) -> Settlement:
        """Remove the address from the error text, because vendors repeat it there."""
        if self.seals is None:
            return settlement
        address, note, verdict = settlement.claim.address, settlement.note, settlement.verdict
        if note is not None and note.error is not None:
            note = replace(note, error=_without(note.error, address))
        if isinstance(verdict, Bury):
            verdict = replace(verdict, reason=_without(verdict.reason, address))
        return replace(settlement, note=note, verdict=verdict)

    def receipt(self, receipt: Receipt) -> Receipt:
        """Remove the address from the report's text, because vendors repeat it there."""
        return receipt if self.seals is None else replace(receipt, reason=self.text(receipt.reason, receipt.address))

    def text(self, text: str | None, *about: str | None) -> str | None:
        """The text without these addresses."""
        if self.seals is not None:
            for address in about:
                text = _without(text, address)
        return text

    def refusal(self, text: str, raw: object) -> str:
        """The text of a refusal, without addresses that occur in the refused input."""
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
    """The function that reseals rows of this table; for a table with one sealed column, the second is None."""
    ways: Mapping[Way, Callable[[str | None], str | None]] = {
        Way.ADDRESS: lambda text: seals.address(seals.open(text)),
        Way.CONTENT: lambda text: seals.content(seals.open(text)),
        Way.CONTACTS: lambda text: _contacts(text or "{}", lambda value: seals.content(seals.open(value))),
        Way.PERSON: lambda text: _person(text or "", lambda value: seals.address(seals.open(value))),
    }
    first, second = (ways[way] for way in (*resealed(table), Way.CONTENT)[:2])
    return lambda one, two: (first(one), second(two))


def _contacts(text: str, change: Callable[[str | None], str | None]) -> str:
    known: Mapping[str, str | None] = json.loads(text)
    return json.dumps({kind: change(value) for kind, value in known.items()})


def _person(person_id: str, change: Callable[[str | None], str | None]) -> str:
    kind, address = bare_address(person_id)
    return person_id if kind is None else f"{kind}:{change(address)}"


def _unwrapped(text: str, seals: Seals) -> str:
    found = json.loads(text)
    return (seals.open(found[_WRAP]) or "") if isinstance(found, dict) and found.keys() == {_WRAP} else text


def _named(seals: Seals, route: Route) -> Route:
    address, ref = route.address, route.recipient_ref
    if not address or not ref.endswith(address) or ref.startswith(_USER):
        return route
    # The new name only has to be unique within the notification.
    name = ref.removesuffix(address) + seals.name(address)
    return replace(route, route_id=f"{route.channel}:{name}", recipient_ref=name)


def _covered(seals: Seals, each: Enrolment) -> Collapse | None:
    """The key of what is replaced, without an address: one is the only name of a person without an id."""
    collapse = each.collapse
    if collapse is None or collapse.audience.startswith((_USER, EVERYBODY)):
        return collapse
    return replace(collapse, audience=seals.name(collapse.audience))


def _gathered(seals: Seals, each: Enrolment) -> tuple[DigestEntry, ...]:
    """The digests under the names of their people that routes have too."""
    names = _names(seals, each)
    return tuple(replace(entry, audience=names.get(entry.audience, entry.audience)) for entry in each.digests)


def _throttled(seals: Seals, each: Enrolment) -> tuple[ThrottleEntry, ...]:
    """The same for throttles, and for the digests in which they end."""
    names, found = _names(seals, each), []
    for entry in each.throttles:
        name = names.get(entry.audience, entry.audience)
        instead = None if entry.instead is None else replace(entry.instead, audience=name)
        found.append(replace(entry, audience=name, instead=instead))
    return tuple(found)


def _names(seals: Seals, each: Enrolment) -> dict[str, str]:
    return {route.recipient_ref: _named(seals, route).recipient_ref for route in each.routes}


def _without(text: str | None, address: str | None) -> str | None:
    """Remove the address in any spelling; a very short address is left, because it may be part of other words."""
    named = (address or "").lstrip("+")
    if not text or len(named) < _SHORTEST:
        return text
    # A store keeps half of this: an address is never cut in two before it is looked for.
    return re.sub(re.escape(named), HIDDEN, text[:_LONGEST_ERROR], flags=re.IGNORECASE)


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


_BATCH = 500


class SealKeyStore:
    """The seal keys of the ledger, and resealing."""

    engine: Engine
    _codec: Codec

    async def seal_keys(self) -> set[str]:
        """The ids of all keys that may have sealed a value."""
        return {row["key_id"] for row in await self.engine.rows("seal_keys")}

    async def note_seal_key(self, key_id: str) -> None:
        await self.engine.write("note_seal_key", {"key_id": key_id}, repeatable=True)

    async def forget_seal_keys(self, but: str) -> None:
        await self.engine.write("forget_seal_keys", {"key_id": but}, repeatable=True)

    async def reseal(self, table: str, pattern: str, again: Again, limit: int) -> int:
        """Reseal up to `limit` rows that are not sealed with the first key; returns their number."""

        def steps() -> Steps[int]:
            rows = yield Ask(f"unsealed_{table}", {"pattern": pattern, "limit": limit})
            anew = [(row["place"], *again(row["one"], row["two"])) for row in rows]
            yield Ask(f"reseal_{table}", each=[{"place": place, "one": one, "two": two} for place, one, two in anew])
            return len(rows)

        return await self.engine.change(steps, repeatable=True)

    async def _know_keys(self) -> None:
        """Refuse a ring that lacks a key in use; seal unsealed rows and rows of other keys with the first key."""
        seals, used = self._codec.seals, await self.seal_keys()
        if seals is None:
            _refuse_sealed(used)
            return
        _refuse_missing(seals, used)
        if used == {seals.first}:
            return
        await self.note_seal_key(seals.first)
        changed = 0
        parts = {row["part"] for row in await self.engine.rows("parts_applied")}
        for table in (each for each in TABLES if each not in OF_THE_API or "api" in parts):
            while (count := await self.reseal(table, seals.pattern, again(seals, table), _BATCH)) > 0:
                changed += count
        # Another process may still seal with the old key: forget the key only after a run that found no row.
        if not changed:
            await self.forget_seal_keys(seals.first)


def _refuse_sealed(used: set[str]) -> None:
    """Refuse to open a sealed ledger without keys."""
    if used:
        raise ConfigurationError(
            f"ledger.seal_keys: this ledger is sealed with the key {', '.join(sorted(used))}; add that key"
        )


def _refuse_missing(seals: Seals, used: set[str]) -> None:
    missing = sorted(used - seals.key_ids)
    if missing:
        raise ConfigurationError(
            f"ledger.seal_keys: this ledger is sealed with the key {missing[0]}, and the keys given are "
            f"{', '.join(sorted(seals.key_ids))}; add the missing key after the first one, which seals"
        )
