"""What no store can hold: a reader that lets it through is found here, not by a database."""

import json
from collections.abc import Callable

from carillon.domain.intents import Intent, Malformed, canonical
from carillon.ledger.rows import storable_json
from tests.fuzz.running import READ, REFUSED


def storable(value: object) -> None:
    """Fails where a store would: U+0000 and lone surrogates."""
    if isinstance(value, str):
        if "\x00" in value.encode().decode():
            raise AssertionError(f"no store holds {value[:80]!r}")
    elif isinstance(value, dict | list):
        for inner in value:
            storable(inner)
            storable(value[inner] if isinstance(value, dict) else "")


def arrived(read: Callable[[bytes], Intent | Malformed]) -> Callable[[bytes], object]:
    """The call of a door's reader: what it gives can be written down, be it an intent or a malformed one."""

    def call(body: bytes) -> str:
        found = read(body)
        if isinstance(found, Malformed):
            storable(json.loads(storable_json(found.raw_fields)))
            return REFUSED
        storable(found.payload)
        canonical(found.payload)
        storable([found.notification_type, found.idempotency_key, found.trace_id])
        return READ

    return call
