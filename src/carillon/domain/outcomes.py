"""What a provider answered to one attempt."""

from typing import Final

import msgspec

STOPPING: Final = "stopping"
"""The classification of an outcome whose cause is the end of this process."""


class Sent(msgspec.Struct, frozen=True, tag="sent", gc=False):
    """The vendor took the message; `message_id` is its name for it, when it gave one."""

    message_id: str | None = None


class Throttled(msgspec.Struct, frozen=True, tag="throttled"):
    """The vendor asks us to come back later; this says nothing against the message."""

    error: str
    retry_after: float | None = None
    classification: str = "throttled"


class Unavailable(msgspec.Struct, frozen=True, tag="unavailable"):
    """The vendor certainly did not take the message now, and may take it later."""

    error: str
    classification: str = "unavailable"
    retry_after: float | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The vendor will never take this message; `recipient_gone` says that the address itself is dead."""

    error: str
    classification: str = "refused"
    recipient_gone: bool = False


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """The request left and no answer came: the message may have been delivered."""

    error: str
    classification: str = "unknown"


Outcome = Sent | Throttled | Unavailable | Refused | Unknown


def outcome_word(outcome: Outcome) -> str:
    """The word for an outcome in tables, metrics and logs."""
    return str(type(outcome).__struct_config__.tag)
