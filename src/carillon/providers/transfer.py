"""One HTTP request on its way through libcurl, and what came of it."""

from collections.abc import Mapping

import pycurl

_FIRST_FINAL_STATUS = 200
_MAX_HEAD = 32 * 1024
_END_OF_HEAD = (b"\r\n", b"\n")
_BEFORE_SENDING = {
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_COULDNT_CONNECT: "connect",
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "tls",
    pycurl.E_URL_MALFORMAT: "bad_request",
    pycurl.E_UNSUPPORTED_PROTOCOL: "bad_request",
}


class Transfer:
    """One request and, afterwards, what came of it."""

    __slots__ = (
        *("method", "url", "headers", "body", "seconds", "pins"),
        *("status", "head_in", "body_in", "failure", "began_sending", "vetoed"),
        *("_head", "_heard", "_limit", "_read"),
    )

    def __init__(  # noqa: PLR0917 - a request has this many parts
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, seconds: float, pins: str | None
    ) -> None:
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.seconds = seconds
        self.pins = pins
        """`host:port:address,…`: the only addresses the name stands for."""
        self.status = 0
        self.head_in: list[bytes] = []
        self.body_in = bytearray()
        self.failure: tuple[str, str] | None = None
        """Classification and text of what broke, if anything did."""
        self.began_sending = False
        self.vetoed = False
        self._head = 0
        self._heard = False
        self._limit = 0
        self._read = 0

    def read(self, size: int) -> bytes:
        """Give libcurl the body; without a way to rewind, it cannot send a request twice behind our back."""
        part = self.body[self._read : self._read + size]
        self._read += len(part)
        return part

    def begin(self, _address: str, _own: str, _port: int, _own_port: int) -> int:
        """Called when a connection is there and nothing has been written: from now on it may have been sent."""
        self.began_sending = True
        return int(pycurl.PREREQFUNC_OK)

    def hear(self, line: bytes) -> int:
        """Take in one line of the head; an interim answer's head is forgotten when the next one begins."""
        size = len(line)
        self._head += size
        if self._head > _MAX_HEAD:
            return 0
        if line in _END_OF_HEAD:
            self._heard = True
        elif line.startswith(b"HTTP/"):
            self.head_in.clear()
            self._heard = False
        else:
            self.head_in.append(line)
        return size

    def take(self, part: bytes) -> int:
        """Take in a part of the body; anything but its length ends the transfer."""
        self.body_in += part
        if len(self.body_in) > self._limit:
            del self.body_in[self._limit :]
            return 0
        return len(part)

    def limit(self, size: int) -> None:
        self._limit = size

    def end(self, status: int, failure: tuple[str, str] | None) -> None:
        """Keep what it came to; half a head is no answer, whatever its first line said."""
        self.failure = failure
        if self._heard and status >= _FIRST_FINAL_STATUS:
            self.status = status
        elif failure is None:
            self.failure = ("connection_lost", "the answer broke off in its head")


def classification(code: int, *, sending: bool) -> str:
    """The word for what broke a transfer."""
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return "timeout"
    return "connection_lost" if sending else _BEFORE_SENDING.get(code, "connection_lost")
