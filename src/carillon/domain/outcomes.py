"""Outcomes: what a provider answers to one attempt."""

from typing import Final

import msgspec

STOPPING: Final = "stopping"
"""The classification of an outcome that the end of this process caused."""


THROTTLED: Final = "throttled"
"""The classification of a throttled answer that is about all calls of the sender."""


class Sent(msgspec.Struct, frozen=True, tag="sent", gc=False):
    """The vendor accepted the message; `message_id` is the vendor's id, if it gave one."""

    message_id: str | None = None


class Throttled(msgspec.Struct, frozen=True, tag="throttled"):
    """The vendor asks us to slow down; the message itself is fine."""

    error: str
    retry_after: float | None = None
    classification: str = THROTTLED
    """Any other word is about this message alone; this one is about all our calls, so that the fleet slows down."""


class Unavailable(msgspec.Struct, frozen=True, tag="unavailable"):
    """The vendor certainly did not accept the message, and may accept it later."""

    error: str
    classification: str = "unavailable"
    retry_after: float | None = None


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The vendor will never accept this message; `recipient_gone` says that the address itself is dead."""

    error: str
    classification: str = "refused"
    recipient_gone: bool = False


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """We sent the request and got no answer: the vendor may have delivered the message."""

    error: str
    classification: str = "unknown"


Outcome = Sent | Throttled | Unavailable | Refused | Unknown


def outcome_word(outcome: Outcome) -> str:
    """The word for an outcome in tables, metrics and logs."""
    return str(type(outcome).__struct_config__.tag)
