"""A person's rights: everything that the ledger knows about a person, shown or erased."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from carillon.domain.consent import bare_address

ERASED = "(erased)"
ERASURE = "erasure"
"""The source of a suppression whose address was erased: it keeps a salted hash."""
_MARK = "erased:"
_SHORTEST = 3


class KnownPerson(msgspec.Struct, frozen=True, kw_only=True):
    """Who is looked for, with every address that the ledger knows of that person."""

    tenant_id: str | None
    person: str
    """A user's id, or `email:` and the like with the address."""
    addresses: tuple[str, ...] = ()

    @property
    def recipient_ref(self) -> str:
        kind, _ = bare_address(self.person)
        return self.person if kind is not None else f"user:{self.person}"

    def mentioned(self, text: str) -> bool:
        """Whether a text names the person: the id or an address as a whole word."""
        return any(pattern.search(text) for pattern in self._patterns())

    def without(self, text: str) -> str:
        """The text without the person's names."""
        for pattern in self._patterns():
            text = pattern.sub(ERASED, text)
        return text

    def _patterns(self) -> "list[re.Pattern[str]]":
        names = {bare_address(self.person)[1], *self.addresses}
        return [re.compile(rf"(?<![\w@.+-]){re.escape(name)}(?![\w@.+-])") for name in names if len(name) >= _SHORTEST]


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure removed, by table; `unfinished` names the places that could not be reached."""

    removed: dict[str, int]
    suppressions_kept: int = 0
    unfinished: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        return not self.unfinished


class RightsLedger(Protocol):
    """The ledger as a person's rights use it."""

    async def person(self, tenant_id: str | None, person: str) -> KnownPerson:
        """The person with the addresses that the ledger knows."""
        ...

    async def notifications_of(self, person: KnownPerson, after: str, limit: int) -> list[str]:
        """The ids of notifications about the person after an id, in order."""
        ...

    async def erase_notifications(self, person: KnownPerson, limit: int) -> dict[str, int]:
        """Erase up to `limit` notifications about the person, in one commit; empty when none is left."""
        ...

    async def erase_person(self, person: KnownPerson, salt: str) -> dict[str, int]:
        """Erase what else is kept about the person, in one commit; suppressions stay under salted hashes."""
        ...

    async def erase_mentions(self, person: KnownPerson) -> dict[str, int]:
        """Erase the person's names from malformed intents and from the audit trail."""
        ...


def erased_mark(salt: str, address: str) -> str:
    """What a suppression keeps of an erased address: enough to recognise it, and no way back."""
    digest = hmac.digest(salt.encode(), address.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return f"{_MARK}{salt}:{digest[:20].hex()}"


def salt_of(mark: str) -> str:
    """The salt of such a mark."""
    return mark.removeprefix(_MARK).partition(":")[0]


class ErasedMarks(msgspec.Struct, frozen=True):
    """The marks of erased addresses, by salt; nearly always none."""

    by_salt: dict[str, frozenset[tuple[str, str, str]]] = {}

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> "ErasedMarks":
        found: dict[str, set[tuple[str, str, str]]] = {}
        for row in rows:
            found.setdefault(salt_of(row["address"]), set()).add((row["channel"], row["tenant_id"], row["address"]))
        return cls({salt: frozenset(marks) for salt, marks in found.items()})

    def hold(self, channel: str, address: str, tenant_id: str | None) -> bool:
        """Whether the owner of the address was suppressed when the address was erased."""
        for salt, marks in self.by_salt.items():
            mark = erased_mark(salt, address)
            if (channel, "", mark) in marks or (channel, tenant_id or "", mark) in marks:
                return True
        return False
