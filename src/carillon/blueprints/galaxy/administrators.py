"""The administrators of a type, as they are configured: plain addresses, each once."""

import re
from collections.abc import Iterable

from carillon.domain.errors import ConfigurationError

_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LONGEST_LOCAL = 64
_LONGEST_ADDRESS = 254
_FEWEST_LABELS = 2


def admin_addresses(notification_type: str, words: Iterable[str]) -> tuple[str, ...]:
    """Trimmed, lower-case, in their order and without repeats; raises ConfigurationError naming what is no address."""
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
