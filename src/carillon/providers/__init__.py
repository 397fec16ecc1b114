"""Providers: one file or folder per vendor, found by its kind and built from its settings."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import msgspec

from carillon.border import hint
from carillon.domain.errors import ConfigurationError
from carillon.domain.ports import Clock, Provider, ReceiptReader
from carillon.domain.receipts import Callback
from carillon.patterns import in_words
from carillon.providers.tools import Secret, Tools, decode_secret

__all__ = [
    "Secret",
    "Tools",
    "callback",
    "channels",
    "has_receipts",
    "is_told",
    "kinds",
    "load",
    "load_reader",
    "remarks",
    "settings_of",
    "tells",
]

_LIVE = {"inbox": "carillon.live.inbox", "sse": "carillon.live.sse"}
"""Kinds whose module is in another room; it has the same shape as a module here."""
_KIND = re.compile(r"[a-z_]+")
_PATH = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_MISSING_FIELD = re.compile(r"Object missing required field `(?P<field>[^`]*)`")


def load(name: str, kind: str, options: Mapping[str, Any], tools: Tools) -> Provider:
    """Build the provider `name` from the module of its kind."""
    module = _module(name, kind)
    settings = _settings(name, module.Settings, options)
    try:
        provider: Provider = module.create(name, settings, tools)
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"providers.{name}: {error}") from None
    return provider


def remarks(name: str, kind: str, options: Mapping[str, Any]) -> list[str]:
    """Warnings about a provider's settings that are valid but probably not what the operator wants."""
    module = _module(name, kind)
    say: Callable[[Any], list[str]] | None = getattr(module, "remarks", None)
    return [] if say is None else say(_settings(name, module.Settings, options))


def load_reader(name: str, kind: str, options: Mapping[str, Any], clock: Clock) -> ReceiptReader:
    """Build the reader of the callbacks of the provider `name`; only kinds with a `<kind>/receipts.py` have one."""
    settings = _settings(name, _module(name, kind).Settings, options)
    make: Callable[..., ReceiptReader] = _receipts(kind).reader
    try:
        return make(name, settings, clock) if "clock" in inspect.signature(make).parameters else make(name, settings)
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"providers.{name}: {error}") from None


def has_receipts(kind: str) -> bool:
    """Whether the kind has a `<kind>/receipts.py`."""
    folder = find_spec(f"{__name__}.{kind}") if _KIND.fullmatch(kind) else None
    return bool(folder and folder.submodule_search_locations and find_spec(f"{__name__}.{kind}.receipts"))


def callback(kind: str) -> Callback:
    """Where the vendor of a kind reports back; only kinds with a `<kind>/receipts.py` declare it."""
    declared: Callback = _receipts(kind).CALLBACK
    return declared


def channels(kind: str) -> frozenset[str] | None:
    """The channels that a kind serves; None means any."""
    found: frozenset[str] | None = _module(kind, kind).CHANNELS
    return found


def tells(kind: str, *, proven: bool) -> frozenset[str]:
    """The goals that can be reported of a kind's messages; without `proven` its vendor's callbacks are refused."""
    declared: frozenset[str] = getattr(_module(kind, kind), "TELLS", frozenset())
    return frozenset() if not proven and _needs_proof(kind) else declared


def _needs_proof(kind: str) -> bool:
    """Whether only the vendor can report: of a push the application that gets it can, too."""
    return has_receipts(kind) and kind != "fcm"


def is_told(kind: str, options: Mapping[str, Any]) -> bool:
    """Whether the vendor knows where to report; most are told in their own console, which no option shows."""
    asked: Callable[[Mapping[str, Any]], bool] | None = getattr(_module(kind, kind), "is_told", None)
    return asked is None or asked(options)


def settings_of(kind: str) -> type[msgspec.Struct]:
    """The options of a kind."""
    found: type[msgspec.Struct] = _module(kind, kind).Settings
    return found


def kinds() -> list[str]:
    """Every kind that has a module, including those whose extra is not installed."""
    return sorted({*_LIVE, *(found.name for found in pkgutil.iter_modules(__path__) if _is_kind(found))})


def _is_kind(found: pkgutil.ModuleInfo) -> bool:
    try:
        return hasattr(importlib.import_module(_module_name(found.name)), "create")
    except ModuleNotFoundError:
        return True


def _module_name(kind: str) -> str:
    """`providers/<kind>.py`, or `providers/<kind>/send.py` where a vendor has a folder."""
    if kind in _LIVE:
        return _LIVE[kind]
    found = find_spec(f"{__name__}.{kind}")
    return f"{__name__}.{kind}.send" if found and found.submodule_search_locations else f"{__name__}.{kind}"


def _receipts(kind: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{kind}.receipts")


def _module(name: str, kind: str) -> ModuleType:
    if not _KIND.fullmatch(kind):
        raise _unknown_kind(name, kind)
    full_name = _module_name(kind)
    try:
        module = importlib.import_module(full_name)
    except ModuleNotFoundError as error:
        if error.name == full_name:
            raise _unknown_kind(name, kind) from None
        raise ConfigurationError(
            f"providers.{name}.kind: {kind!r} needs the package {error.name!r}; pip install 'carillon[{kind}]'"
        ) from None
    if not hasattr(module, "create"):
        raise _unknown_kind(name, kind)
    return module


def _unknown_kind(name: str, kind: str) -> ConfigurationError:
    return ConfigurationError(f"providers.{name}.kind: no provider kind {kind[:64]!r}; known: {', '.join(kinds())}")


def _settings(name: str, wanted: type[msgspec.Struct], options: Mapping[str, Any]) -> msgspec.Struct:
    try:
        # Not strict: an option from an environment variable is text.
        return msgspec.convert(dict(options), wanted, strict=False, dec_hook=decode_secret)
    except msgspec.ValidationError as error:
        said = _name_the_field(name, in_words(str(error)))
        raise ConfigurationError(f"providers.{said}{hint(str(error), wanted)}") from None


def _name_the_field(name: str, text: str) -> str:
    where = _PATH.search(text)
    path = where["path"] if where else ""
    said = _PATH.sub("", text)
    named = _UNKNOWN_FIELD.search(said) or _MISSING_FIELD.search(said)
    parts = [name, path, named["field"] if named else ""]
    return f"{'.'.join(part for part in parts if part)}: {said}"
