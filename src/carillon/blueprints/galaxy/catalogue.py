"""The notification types, read from data and checked, and the administrators of each."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from carillon.domain.errors import ConfigurationError

SHIPPED = Path(__file__).with_name("catalogue.toml")
CHANNELS = ("push", "email")

AudienceKind = Literal["user", "admin_email"]
Channel = Literal["push", "email"]
PayloadKind = Literal["string", "integer"]
SlotKind = Literal["string", "int64"]

_TYPE = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LONGEST_LOCAL = 64
_LONGEST_ADDRESS = 254
_FEWEST_LABELS = 2
_LONGEST_NAME = 128
_FITS: dict[SlotKind, PayloadKind] = {"string": "string", "int64": "integer"}


class _CatalogueStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the catalogue; an unknown field stops the start."""


class Slot(_CatalogueStruct, frozen=True):
    """One field of a FlatBuffers table; its place in the list is its slot."""

    name: str
    kind: SlotKind


class PushTable(_CatalogueStruct, frozen=True):
    """The FlatBuffers table of a type's push payload."""

    table: str
    fields: tuple[Slot, ...]


class NotificationType(_CatalogueStruct, frozen=True):
    """One notification type: its producer, audiences, channels and payload."""

    producer: str
    audiences: dict[AudienceKind, tuple[Channel, ...]]
    required: dict[str, PayloadKind]
    category: str | None = None
    """What kind of message it is, unless an entry says otherwise."""
    push: PushTable | None = None


class TypeCatalogue(_CatalogueStruct, frozen=True):
    """All types by name."""

    types: dict[str, NotificationType]

    def of_audience(self, kind: AudienceKind) -> list[str]:
        """The types that may be sent to this audience."""
        return [name for name, entry in self.types.items() if kind in entry.audiences]


def read(extra: Path | None = None) -> TypeCatalogue:
    """The shipped catalogue with the entries of `extra`; an entry replaces the shipped one of the same name."""
    types = dict(_load(SHIPPED).types)
    if extra is not None:
        types |= _load(extra).types
    _refuse_shared_tables(types, extra or SHIPPED)
    return TypeCatalogue(types=types)


def _load(file: Path) -> TypeCatalogue:
    try:
        found = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), TypeCatalogue)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"catalogue {file}: {error}") from error
    for name, entry in found.types.items():
        if (wrong := _wrong_with(name, entry)) is not None:
            raise ConfigurationError(f"catalogue {file}: {name}: {wrong}")
    return found


def _wrong_with(name: str, entry: NotificationType) -> str | None:
    unfit = next((word for word in entry.required if not _is_name(word)), None)
    if not _TYPE.fullmatch(name) or len(name) > _LONGEST_NAME:
        return "a type is lower-case words with dots between them"
    if not _is_name(entry.producer):
        return "producer must be one word"
    if unfit is not None:
        return f"required: {unfit!r} is no name a template could ask for"
    return _wrong_channels(entry) or _wrong_push(entry)


def _wrong_channels(entry: NotificationType) -> str | None:
    if not entry.audiences:
        return "audiences: name at least one of user, admin_email"
    for kind, channels in entry.audiences.items():
        if not channels or len(set(channels)) != len(channels):
            return f"audiences.{kind}: name each channel once, and at least one"
    if "push" in entry.audiences.get("admin_email", ()):
        return "audiences.admin_email: administrators have addresses and no user id; push cannot reach them"
    if any("push" in channels for channels in entry.audiences.values()) != (entry.push is not None):
        return "a push table belongs to exactly those types that push is a channel of"
    return None


def _wrong_push(entry: NotificationType) -> str | None:
    if entry.push is None:
        return None
    names = [slot.name for slot in entry.push.fields]
    if not _is_name(entry.push.table) or not names or len(set(names)) != len(names):
        return "push: a table needs a name, and fields that are each named once"
    for slot in entry.push.fields:
        if entry.required.get(slot.name) != _FITS[slot.kind]:
            return f"push.fields: {slot.name} must be a required {_FITS[slot.kind]} of the payload"
    return None


def _refuse_shared_tables(types: dict[str, NotificationType], file: Path) -> None:
    owners: dict[str, str] = {}
    for name, entry in types.items():
        if entry.push is not None and (owner := owners.setdefault(entry.push.table, name)) != name:
            raise ConfigurationError(f"catalogue {file}: {name}: table {entry.push.table} is already {owner}'s")


def _is_name(word: str) -> bool:
    return _NAME.fullmatch(word) is not None and len(word) <= _LONGEST_NAME


def admin_addresses(notification_type: str, words: Iterable[str]) -> tuple[str, ...]:
    """The addresses, trimmed, lower-case, in order, without repeats; raises ConfigurationError for a wrong one."""
    addresses = [word.strip().lower() for word in words]
    for address in filter(None, addresses):
        if not _is_address(address):
            raise ConfigurationError(f"administrators of {notification_type}: {address[:80]!r} is not an email address")
    return tuple(dict.fromkeys(filter(None, addresses)))


def _is_address(address: str) -> bool:
    local, _, domain = address.rpartition("@")
    labels = domain.split(".")
    return (
        len(address) <= _LONGEST_ADDRESS
        and len(local) <= _LONGEST_LOCAL
        and _LOCAL.fullmatch(local) is not None
        and len(labels) >= _FEWEST_LABELS
        and all(map(_LABEL.fullmatch, labels))
    )
