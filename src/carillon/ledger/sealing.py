"""Sealing of personal data: the ring of keys, and the codec of sealed columns."""

import base64
import hashlib
import hmac
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec.structs import replace

from carillon.domain.claims import Claim, Settlement
from carillon.domain.consent import bare_address
from carillon.domain.digests import DigestEntry, ThrottleEntry
from carillon.domain.errors import ConfigurationError
from carillon.domain.notifications import EVERYBODY, Collapse, Enrolment, Route
from carillon.domain.receipts import Receipt
from carillon.domain.store import Row, Values
from carillon.domain.verdicts import Bury
from carillon.ledger.columns import Way, opened_names, sealed_names

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
        self._blind = [_derived(secret, "names") for secret in secrets]

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
        return self.names(address)[0]

    def names(self, address: str) -> list[str]:
        """The name under every key of the ring: a name that an older key made is not changed with the key."""
        text = address.encode("utf-8", "surrogatepass")
        return [hmac.digest(blind, text, "sha256")[:16].hex() for blind in self._blind]

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
        return person_id if self.seals is None else changed_person(person_id, self.seals.address)

    def ref(self, ref: str) -> str:
        """The name of a person as new rows hold it."""
        kind, address = bare_address(ref)
        return ref if self.seals is None or kind is None else f"{kind}:{self.seals.name(address)}"

    def refs(self, refs: Sequence[str]) -> list[str]:
        """The names of a person as columns hold them: as they are, and as seals change those with an address."""
        found = list(refs)
        for ref in refs if self.seals is not None else ():
            kind, address = bare_address(ref)
            if self.seals is not None and kind is not None:
                found += [f"{kind}:{name}" for name in self.seals.names(address)]
                found += self.seals.names(ref)
        return found

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
                return changed_contacts(value, seals.content)
            case Way.RAW:
                return json.dumps({_WRAP: seals.content(value)})
            case _:
                return value

    def _open(self, seals: Seals, name: str, value: Any) -> Any:  # noqa: ANN401 - whatever a column holds
        if name not in self._opened or not isinstance(value, str):
            return value
        match self._opened[name]:
            case Way.CONTACTS:
                return changed_contacts(value, seals.open)
            case Way.RAW:
                return _unwrapped(value, seals)
            case _:
                return seals.open(value)


def changed_contacts(text: str, change: Callable[[str | None], str | None]) -> str:
    """Contacts with every value changed."""
    known: Mapping[str, str | None] = json.loads(text)
    return json.dumps({kind: change(value) for kind, value in known.items()})


def changed_person(person_id: str, change: Callable[[str | None], str | None]) -> str:
    """The id of a person with its address changed, if it has one."""
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
