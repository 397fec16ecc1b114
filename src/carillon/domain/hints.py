"""What was probably meant: msgspec says what does not fit, this adds what would."""

import enum
import re
from collections.abc import Iterator
from difflib import get_close_matches
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

_PLACE = re.compile(r" - at `\$?\.?(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"contains unknown field `(?P<field>[^`]*)`")
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_NOTHING = (NoneType, msgspec.UnsetType)


def hint(said: str, kind: Any) -> str:  # noqa: ANN401 - any wire type
    """What to add to msgspec's sentence about a value that should have been of this kind; "" where nothing is known."""
    place = _PLACE.search(said)
    there = _at(kind, place["path"] if place else "")
    unknown = _UNKNOWN.search(said)
    if unknown is not None:
        names = dict(_names(there))
        meant = get_close_matches(unknown["field"], names, n=1)
        return f"; did you mean `{names[meant[0]]}`?" if meant else ""
    words = _words(there) if said.startswith("Invalid enum value") else []
    return f"; it is one of {', '.join(words)}" if words else ""


def _at(kind: Any, path: str) -> Any:  # noqa: ANN401 - any wire type
    """The type that stands at a path such as `policy.retry[...].max_attempts`."""
    kind = _bare(kind)
    for step in _STEP.findall(path):
        inner = get_args(kind)
        if not step.startswith("["):
            kind = _bare(_fields(kind).get(step))
        elif inner:
            kind = _bare(inner[-1] if get_origin(kind) is dict else inner[0])
        else:
            return None
    return kind


def _bare(kind: Any) -> Any:  # noqa: ANN401 - any wire type
    """Without what only annotates it and without the choice to leave it out."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in (Literal, dict, list, tuple, set, frozenset):
        return kind
    held = [one for one in get_args(kind) if one not in _NOTHING]
    return _bare(held[0]) if len(held) == 1 else kind


def _fields(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - any wire type
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def _names(kind: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any wire type
    """What a field may have been written for, and its right name; `ledger_url` was meant for `ledger.url`."""
    for name, held in _fields(kind).items():
        yield from ((f"{name}_{inner}", f"{name}.{inner}") for inner in _fields(_bare(held)))
        yield name, name


def _words(kind: Any) -> list[str]:  # noqa: ANN401 - any wire type
    if get_origin(kind) is Literal:
        return [str(word) for word in get_args(kind)]
    return [str(one.value) for one in kind] if isinstance(kind, type) and issubclass(kind, enum.Enum) else []
