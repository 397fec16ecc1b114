"""The head of an HTTP/1.1 request, read strictly: what is not plainly right is refused."""

import re

import msgspec

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LINE = re.compile(rb"(%s) ([\x21-\x7e]+) HTTP/1\.([01])" % _TOKEN)
_FIELD = re.compile(rb"(%s):[ \t]*([\t\x20-\x7e\x80-\xff]*)" % _TOKEN)
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_ONCE = frozenset({b"content-length", b"host", b"transfer-encoding"})


class Head(msgspec.Struct, frozen=True):
    """What a request asks for, and how much of it is still to come."""

    method: str
    path: str
    """Without the query."""
    length: int = 0
    keep_alive: bool = True
    open_ended: bool = False
    """The body has no length, or comes only when it is asked for: the answer must not wait for it."""


def read_head(text: bytes) -> Head | None:
    """Everything up to the empty line, without it; None when it is no request."""
    first, *lines = text.split(b"\r\n")
    found = _LINE.fullmatch(first)
    fields = _fields(lines)
    if found is None or fields is None or not _is_framed(fields):
        return None
    newer = found[3] == b"1"
    if newer and b"host" not in fields:
        return None
    said = {word.strip() for word in fields.get(b"connection", b"").lower().split(b",")}
    return Head(
        method=found[1].decode(),
        path=_ABSOLUTE.sub("", found[2].decode()).partition("?")[0] or "/",
        length=int(fields.get(b"content-length", b"0")),
        keep_alive=b"close" not in said and (newer or b"keep-alive" in said),
        open_ended=b"transfer-encoding" in fields or b"expect" in fields,
    )


def _fields(lines: list[bytes]) -> dict[bytes, bytes] | None:
    fields: dict[bytes, bytes] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            return None
        name, value = found[1].lower(), found[2].rstrip(b" \t")
        if name in fields:
            # Two readers of such a request could see two different ones.
            if name in _ONCE:
                return None
            value = fields[name] + b"," + value
        fields[name] = value
    return fields


def _is_framed(fields: dict[bytes, bytes]) -> bool:
    length = fields.get(b"content-length")
    return length is None or (_LENGTH.fullmatch(length) is not None and b"transfer-encoding" not in fields)
