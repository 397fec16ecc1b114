"""Credentials that a vendor's answer repeats are masked here, before anything else reads the answer."""

import base64
import binascii
import html
from collections.abc import Iterable, Sequence
from functools import lru_cache
from urllib.parse import quote

MASK = "***"
_SHORTEST = 6
"""A shorter word would hide parts of others; no vendor issues such a credential."""
_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})
_ENDINGS = ("token", "key", "secret", "password", "credential")
# The bits of a text that begins one or two bytes behind a border of three share their first characters with others.
_SHARED = (0, 2, 3)


def credentials(lines: Iterable[str], more: Sequence[str] = ()) -> tuple[str, ...]:
    """What must not come back of a request with these header lines."""
    found = list(more)
    for line in lines:
        name, _, value = line.partition(":")
        name = name.lower()
        if name in _CREDENTIALS or name.endswith(_ENDINGS):
            found.append(value.strip())
    return tuple(found)


def without(body: bytes, secrets: tuple[str, ...]) -> bytes:
    """The body with every form of these credentials masked."""
    for secret in secrets if body else ():
        for form in _forms(secret):
            if form in body:
                body = body.replace(form, MASK.encode())
    return body


def echoed(parts: Sequence[bytes], secrets: tuple[str, ...]) -> bool:
    """Whether any part contains some form of these credentials: one quick look, which almost always finds nothing."""
    whole = b"\n".join(parts)
    return any(mark in whole for secret in secrets for mark in _marks(secret))


def without_in(text: str, secrets: tuple[str, ...]) -> str:
    """The same for a text."""
    return without(text.encode("utf-8", "replace"), secrets).decode("utf-8", "replace") if secrets else text


@lru_cache(maxsize=256)
def _forms(secret: str) -> tuple[bytes, ...]:
    """Plain, in base64 (also as a part of another text), and as URLs, JSON and HTML spell them; long ones first."""
    found: set[str] = set()
    for word in _words(secret):
        for form in {word, word.rstrip("="), *_in_base64(word.encode("utf-8", "replace"))}:
            found |= {form, quote(form, safe=""), form.replace("/", r"\/"), html.escape(form)}
            found |= {
                form.replace("+", plus).replace("/", slash).replace("=", same)
                for plus, slash, same in (
                    (r"\u002b", "/", r"\u003d"),
                    (r"\u002B", r"\u002F", r"\u003D"),
                    ("&#43;", "&#47;", "&#61;"),
                    ("&#x2B;", "&#x2F;", "&#x3D;"),
                )
            }
    long = (form.encode("utf-8", "replace") for form in found if len(form) >= _SHORTEST)
    return tuple(sorted(long, key=len, reverse=True))


@lru_cache(maxsize=256)
def _marks(secret: str) -> tuple[bytes, ...]:
    """The shortest forms: what contains a longer one contains one of these."""
    found: list[bytes] = []
    for form in reversed(_forms(secret)):
        if not any(mark in form for mark in found):
            found.append(form)
    return tuple(found)


def _words(secret: str) -> set[str]:
    """The parts of a header's value that are secret by themselves; `Basic` holds a user and a password."""
    scheme, blank, rest = secret.partition(" ")
    words = {secret, rest.strip()} if blank else {secret}
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(rest.strip(), validate=True).decode()
        except (binascii.Error, ValueError):
            return words
        words |= {pair, pair.partition(":")[2]}
    for part in (rest or secret).replace(";", ",").replace("&", ",").split(","):
        # `key=…` and `Signature=…`: the value without its name.
        name, _, value = part.strip().partition("=")
        if name.lower().endswith((*_ENDINGS, "signature")):
            words.add(value)
    return words


def _in_base64(raw: bytes) -> set[str]:
    """What base64 of any text that contains these bytes contains."""
    found: set[str] = set()
    for shift, shared in enumerate(_SHARED):
        text = base64.b64encode(b"\0" * shift + raw)[shared : (shift + len(raw)) * 8 // 6].decode()
        found |= {text, text.replace("+", "-").replace("/", "_")}
    return found
