"""One canonical JSON writer and one fingerprint."""

import hashlib
import json
from typing import Any


def canonical(value: Any) -> str:
    """Sorted keys, no spaces, non-ASCII raw: equal content gives equal text."""
    return _writer.encode(value)


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical text, lower-case hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


# Made once: building one for every text costs as much as the text.
_writer = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
