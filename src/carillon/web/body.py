"""Reading and decoding a request body under limits."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeVar

import msgspec

from carillon.domain.hints import hint
from carillon.web.problems import Detail, Problem

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Kind = TypeVar("Kind")

_JSON = b"application/json"
_UTF8 = re.compile(rb'application/json\s*;\s*charset="?utf-8"?\s*', re.IGNORECASE)
_MESSAGE = re.compile(r"(?P<text>.*?)(?: - at `\$?\.?(?P<path>[^`]*)`)?", re.DOTALL)
_NAMED = re.compile(r"(?:unknown|required) field `([^`]*)`")
_SHOWN = 300
_MAX_DIGITS = 18


class RawBody(msgspec.Struct, frozen=True, kw_only=True):
    """A body that an endpoint reads as bytes, because its proof is made over bytes."""

    limit: int
    media_types: tuple[str, ...] = ("application/json",)


def check_head(headers: Mapping[bytes, bytes], limit: int, raw: RawBody | None = None) -> None:
    """Refuse a body by its headers alone, before a byte of it is read."""
    kind = headers.get(b"content-type", b"")
    if raw is not None:
        if kind.partition(b";")[0].strip().lower().decode("latin-1") not in raw.media_types:
            raise Problem("UNSUPPORTED_MEDIA_TYPE", f"Content-Type must be {' or '.join(raw.media_types)}")
    elif kind != _JSON and kind.strip().lower() != _JSON and not _UTF8.fullmatch(kind.strip()):
        raise Problem("UNSUPPORTED_MEDIA_TYPE", "Content-Type must be application/json in UTF-8")
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() != b"identity":
        # Decompressing is where a small body becomes a huge one.
        raise Problem(
            "UNSUPPORTED_MEDIA_TYPE", "Content-Encoding must be identity", headers={"Accept-Encoding": "identity"}
        )
    if raw is not None:
        # Refused in the middle of its batch, a vendor sees a broken connection and no 413: read up to the limit.
        return
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and (len(length) > _MAX_DIGITS or int(length) > limit):
        raise _too_large(limit)


async def read_body(receive: Receive, limit: int, seconds: float) -> bytes:
    """The whole body, never more than `limit` bytes of it in memory."""
    try:
        async with asyncio.timeout(seconds):
            message = await _next(receive)
            chunk: bytes = _bytes(message)
            if not message.get("more_body"):
                return _within(chunk, limit)
            chunks, size = [chunk], len(chunk)
            while message.get("more_body"):
                if size > limit:
                    raise _too_large(limit)
                message = await _next(receive)
                chunk = _bytes(message)
                chunks.append(chunk)
                size += len(chunk)
            return _within(b"".join(chunks), limit)
    except TimeoutError:
        raise Problem("REQUEST_TIMEOUT", "the body did not arrive in time", headers={"Connection": "close"}) from None


async def _next(receive: Receive) -> MutableMapping[str, Any]:
    try:
        return await receive()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The server cancels the awaited future, not the task, when the client leaves in the middle of a body.
        return {"type": "http.disconnect"}


def _bytes(message: MutableMapping[str, Any]) -> bytes:
    if message["type"] == "http.disconnect":
        # Also what broken chunked framing looks like from here, so an answer may still be read.
        raise Problem("VALIDATION_ERROR", "the body ended early", headers={"Connection": "close"})
    body: bytes = message.get("body", b"")
    return body


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> Problem:
    return Problem("PAYLOAD_TOO_LARGE", f"the body is larger than {limit} bytes", headers={"Connection": "close"})


def convert(value: object, kind: type[Kind], *, strict: bool = True, prefix: str = "") -> Kind:
    """Check `value` against a wire type and say which field is wrong."""
    try:
        return msgspec.convert(value, type=kind, strict=strict)
    except msgspec.ValidationError as error:
        raise invalid(str(error), prefix, hint(str(error), kind)) from None


def invalid(message: str, prefix: str = "", meant: str = "") -> Problem:
    """A validation problem out of msgspec's sentence, whose tail names the place; `meant` is added to it."""
    found = _MESSAGE.fullmatch(message)
    text, path = (found["text"], found["path"] or "") if found else (message, "")
    named = _NAMED.search(text)
    parts = [part for part in (prefix, path, named[1] if named else "") if part]
    field = ".".join(parts).replace(".[", "[")[:_SHOWN] or None
    sentence = text[:_SHOWN] if field is None or named else f"{text[:_SHOWN]} at {field}"
    return Problem("VALIDATION_ERROR", sentence + meant, details=[Detail(text[:_SHOWN] + meant, field)])
