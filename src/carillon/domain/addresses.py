"""What an address of each channel looks like."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

_PHONE = re.compile(r"\+[1-9][0-9]{1,14}")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_EMAIL, _MAX_LOCAL, _MAX_USER = 254, 64, 255
REFERENCES = {"email": "email", "sms": "phone", "push": "token", "webhook": "url", "inApp": "inapp"}
"""What stands before an address in the reference of a recipient without a user id, by channel."""


def canonical(channel: str, address: str) -> str:
    """The spelling under which an address is kept and compared: no mail server tells Ada@ from ada@."""
    return address.lower() if channel == "email" else address


def spellings(channel: str, address: str) -> tuple[str, ...]:
    """The canonical spelling first, then the given one: rows from before there was a canonical one have that."""
    kept = canonical(channel, address)
    return (kept,) if kept == address else (kept, address)


def reference(channel: str, address: str) -> str:
    """The reference of a recipient without a user id."""
    return f"{REFERENCES[channel]}:{canonical(channel, address)}"


def unfit(channel: str, address: str) -> str | None:
    """None when the channel could deliver to the address, otherwise what it should be."""
    fits, wanted = _ADDRESSES[channel]
    return None if fits(address) else wanted


def _is_email(address: str) -> bool:
    local, at, domain = address.rpartition("@")
    labels = domain.split(".")
    return (
        bool(at)
        and len(address) <= _MAX_EMAIL
        and len(local) <= _MAX_LOCAL
        and _LOCAL.fullmatch(local) is not None
        and len(labels) > 1
        and all(_LABEL.fullmatch(label) for label in labels)
    )


def _is_url(address: str) -> bool:
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in {"http", "https"}
        and bool(parts.hostname)
        and parts.username is None
        and port != 0
        and _TOKEN.fullmatch(address) is not None
    )


def _is_user(address: str) -> bool:
    # The name of a person's log joins tenant and user with a control character.
    return len(address) <= _MAX_USER and _CONTROL.search(address) is None


_ADDRESSES: dict[str, tuple[Callable[[str], object], str]] = {
    "sms": (_PHONE.fullmatch, "an E.164 number such as +4915112345678"),
    "email": (_is_email, "an e-mail address"),
    "webhook": (_is_url, "an http or https URL without credentials"),
    "push": (_TOKEN.fullmatch, "a device token of printable ASCII"),
    "inApp": (_is_user, f"a user id of at most {_MAX_USER} characters, none of them a control character"),
}
KNOWN_CHANNELS = frozenset({*_ADDRESSES, "sse"})
"""Every channel that some door takes messages for."""
