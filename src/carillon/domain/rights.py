"""A person's rights: everything that the ledger knows about a person, shown or erased."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from carillon.domain.consent import ADDRESS_KINDS, bare_address
from carillon.domain.notifications import Story

ERASED = "(erased)"
ERASURE = "erasure"
"""The source of a suppression whose address was erased: it keeps a salted hash."""
MARKS_FRESH_SECONDS = 5.0
"""So long a process goes by the salted hashes that it has read."""
_MARK = "erased:"
USER = "user:"
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
        return self.person if kind is not None else f"{USER}{self.person}"

    @property
    def refs(self) -> tuple[str, ...]:
        """Every name under which rows are kept: the person's own, and the ones that an address alone would have."""
        bare = [f"{kind}:{address}" for address in self.addresses for kind in ADDRESS_KINDS]
        return (self.recipient_ref, *(ref for ref in bare if ref != self.recipient_ref))

    @property
    def names(self) -> tuple[str, ...]:
        """Every id under which preferences are kept: the person's own, and those of the addresses."""
        return (self.person, *(ref for ref in self.refs if ref != self.person and bare_address(ref)[0] is not None))

    @property
    def reached_at(self) -> tuple[str, ...]:
        """Everything that a suppression may hold: the addresses, and the id, which is the address of an inbox."""
        return tuple(dict.fromkeys((*self.addresses, self._name)))

    def owns(self, recipient_ref: str, address: str | None) -> bool:
        """Whether a route is this person's; a route to another user with the same address is not."""
        if recipient_ref == self.recipient_ref:
            return True
        return not recipient_ref.startswith(USER) and address in self.addresses

    def mentioned(self, value: Any) -> bool:  # noqa: ANN401 - JSON of any shape
        """Whether a value names the person: the id or an address as a whole word, or a short id as the whole value.

        Of an object only the values count, so that an id such as `email` is not found in every intent.
        """
        match value:
            case str():
                return value == self._name or any(pattern.search(value) for pattern in self._patterns)
            case Mapping():
                return any(self.mentioned(each) for each in value.values())
            case list() | tuple():
                return any(self.mentioned(each) for each in value)
            case _:
                return False

    def mentioned_in(self, raw: bytes) -> bool:
        """The same for a message of a queue, which is JSON or any text."""
        try:
            return self.mentioned(msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.mentioned(raw.decode("utf-8", "replace"))

    def without(self, value: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        """The value without the person's names."""
        match value:
            case str():
                if value == self._name:
                    return ERASED
                for pattern in self._patterns:
                    value = pattern.sub(ERASED, value)
                return value
            case Mapping():
                return {name: self.without(each) for name, each in value.items()}
            case list() | tuple():
                return [self.without(each) for each in value]
            case _:
                return value

    @property
    def _name(self) -> str:
        return bare_address(self.person)[1]

    @property
    def _patterns(self) -> "tuple[re.Pattern[str], ...]":
        return _patterns(frozenset({self._name, *self.addresses}))


@lru_cache(maxsize=16)
def _patterns(names: frozenset[str]) -> "tuple[re.Pattern[str], ...]":
    long = sorted(name for name in names if len(name) >= _SHORTEST)
    return tuple(re.compile(rf"(?<![\w@.+-]){re.escape(name)}(?![\w@+-]|\.\w)") for name in long)


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure removed, by table; `unfinished` names the places that could not be reached."""

    removed: dict[str, int]
    suppressions_kept: int = 0
    unfinished: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        return not self.unfinished


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """An erasure that has begun and has not ended: the ledger keeps it, so that a crash cannot lose the addresses."""

    subject: str
    """The salted hash under which the audit trail knows the person."""
    person: KnownPerson
    actor: str


class ErasedStep(msgspec.Struct, frozen=True):
    """What one step of an erasure removed, and after which id the next one goes on; None after the last."""

    rows: dict[str, int]
    after: str | None


class RightsLedger(Protocol):
    """The ledger as a person's rights use it."""

    async def parts(self) -> set[str]:
        """The parts whose tables this ledger has."""
        ...

    async def person(self, tenant_id: str | None, person: str) -> KnownPerson:
        """The person with the addresses that the ledger knows."""
        ...

    async def stories_of(self, person: KnownPerson, after: str) -> tuple[list[Story], str | None]:
        """Notifications about the person after an id, with the person's own routes; the id to go on from, or None."""
        ...

    async def kept_of(self, person: KnownPerson, what: str) -> list[dict[str, Any]]:
        """Other rows about the person: `digests`, `stream_entries`, `receipts` or `audit_logs`."""
        ...

    async def begin_erasure(self, pending: Pending, lease_seconds: float) -> None:
        """Write down that an erasure begins, or goes on: a process that dies leaves it to others after the lease."""
        ...

    async def pending_erasures(self, *, waiting: bool) -> list[Pending]:
        """The erasures that have not ended; with `waiting`, only those whose process let its lease pass."""
        ...

    async def end_erasure(self, subject: str) -> None:
        """Forget an erasure that has ended."""
        ...

    async def erase_notifications(self, person: KnownPerson, after: str) -> ErasedStep:
        """Look through some notifications after an id, and erase those about the person in one commit."""
        ...

    async def mark_suppressions(self, person: KnownPerson, salt: str) -> int:
        """Put salted hashes beside the person's suppressions, which `erase_person` removes; how many there are."""
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
