"""The heads of HTTP/1.1: a request's is read strictly, a reply's is written whole."""

import email.utils
import re
import time
from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus

import h11
import msgspec

from carillon.domain.errors import CarillonError

PROBLEM_TYPE = b"application/problem+json"
_END = b"\r\n\r\n"
_MOST_HEADERS = 100
_VERSIONS = frozenset({b"1.0", b"1.1"})
# h11 forgives bare line feeds, folded lines, control characters and a repeated length. A proxy in front of the server
# may read such a head differently, so the server refuses it.
_AMBIGUOUS = re.compile(rb"(?<!\r)\n|\r(?!\n)|\r\n[ \t]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LENGTH = re.compile(rb"\r\ncontent-length:", re.IGNORECASE)


class UnfitHeader(CarillonError):
    """A header of a reply that would end its line and begin another."""


class ProblemSummary(msgspec.Struct, frozen=True):
    """The problem document of a request that reaches no application."""

    title: str
    status: int
    type: str = "about:blank"


def summary(status: int) -> ProblemSummary:
    return ProblemSummary(HTTPStatus(status).phrase, status)


class HeadReader:
    """Collects the bytes of one request head after the other; a head it refuses is an h11.RemoteProtocolError."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._arrived = bytearray()

    @property
    def begun(self) -> bool:
        """Whether a part of a head is here."""
        return bool(self._arrived)

    def feed(self, data: bytes) -> bytes | None:
        """The whole head together with the bytes behind it; None while the head is incomplete."""
        arrived = self._arrived
        start = max(0, len(arrived) - len(_END) + 1)
        arrived += data
        while arrived.startswith(b"\r\n"):
            # RFC 9112 asks servers to ignore empty lines before a request.
            del arrived[:2]
            start = 0
        end = arrived.find(_END, start, self._most)
        if end < 0:
            if len(arrived) >= self._most:
                raise _refused("the head is too large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            if arrived and arrived[0] <= ord(" ") and arrived != b"\r":
                raise _refused("no request begins with this byte")
            return None
        if _AMBIGUOUS.search(arrived, 0, end) or len(_LENGTH.findall(arrived, 0, end)) > 1:
            raise _refused("the head is ambiguous")
        whole = bytes(arrived)
        arrived.clear()
        return whole


def check(request: h11.Request, most: int) -> None:
    """Refuse a head that h11 accepts and this server does not."""
    if request.http_version not in _VERSIONS:
        raise _refused("only HTTP/1.0 and HTTP/1.1 are served")
    size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
    if size > most or len(request.headers) > _MOST_HEADERS:
        raise _refused("the head is too large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    if {b"transfer-encoding", b"content-length"} <= {name for name, _ in request.headers}:
        raise _refused("the body has two lengths")


def _refused(reason: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> h11.RemoteProtocolError:
    return h11.RemoteProtocolError(reason, error_status_hint=status)


def head(status: int, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The head of a reply; UnfitHeader if a header holds the end of a line."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    if lines.count(b"\n") != len(headers) or lines.count(b"\r") != len(headers) or b"\0" in lines:
        raise UnfitHeader(f"a header of {status} holds the end of a line")
    return b"%b%bdate: %b\r\n\r\n" % (_status_line(status), lines, _date(int(time.time())))


def refusal(status: int) -> bytes:
    """The whole reply to a request that reaches no application."""
    body = msgspec.json.encode(summary(status))
    headers = [(b"content-type", PROBLEM_TYPE), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    return head(status, headers) + body


def says_close(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether the connection is to end after this request or reply."""
    return any(
        name == b"connection" and b"close" in {token.strip() for token in value.lower().split(b",")}
        for name, value in headers
    )


@lru_cache(maxsize=64)
def _status_line(status: int) -> bytes:
    known = HTTPStatus(status)
    return b"HTTP/1.1 %d %b\r\n" % (known, known.phrase.encode())


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return email.utils.formatdate(second, usegmt=True).encode()
