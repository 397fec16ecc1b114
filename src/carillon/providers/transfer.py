"""One HTTP request that libcurl transfers, and its result."""

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
    """A libcurl handle that serves one request after another, with the result of the last one.

    libcurl gets the callbacks once, not for each request.
    """

    __slots__ = (
        *("handle", "asked", "bounds", "status", "head_in", "body_in", "failure", "began_sending", "vetoed"),
        *("_body", "_read", "_head_room", "_body_room"),
    )

    def __init__(self, handle: pycurl.Curl) -> None:
        self.handle = handle
        self.asked: tuple[str, str, str | None] | None = None
        """Method, URL and pinned addresses that are already set on the handle."""
        self.bounds = (-1, -1)
        """Body size and timeout in milliseconds that are already set on the handle."""
        self.renew(b"", 0)
        handle.setopt(pycurl.READFUNCTION, self.read)
        handle.setopt(pycurl.PREREQFUNCTION, self.begin)
        handle.setopt(pycurl.HEADERFUNCTION, self.take_header)
        handle.setopt(pycurl.WRITEFUNCTION, self.take_body)

    def renew(self, body: bytes, max_body: int) -> None:
        """Reset the handle for the next request."""
        self.status = 0
        self.head_in: list[bytes] = []
        self.body_in: bytes | bytearray = b""
        self.failure: tuple[str, str] | None = None
        """Classification and text of the failure, if there is one."""
        self.began_sending = False
        self.vetoed = False
        self._body = body
        self._read = 0
        self._head_room = _MAX_HEAD
        self._body_room = max_body

    def read(self, size: int) -> bytes:
        """Give libcurl the body; libcurl cannot rewind it, so it cannot repeat a request by itself."""
        part = self._body[self._read : self._read + size]
        self._read += len(part)
        return part

    def begin(self, _address: str, _own: str, _port: int, _own_port: int) -> int:
        """Libcurl calls this when it is connected and before it writes: from now on the request may have been sent."""
        self.began_sending = True
        return int(pycurl.PREREQFUNC_OK)

    def take_header(self, line: bytes) -> int | None:
        """Keep one header line, unparsed; too many bytes of them end the transfer."""
        self._head_room -= len(line)
        if self._head_room < 0:
            return 0
        self.head_in.append(line)
        return None

    def take_body(self, part: bytes) -> int | None:
        """Keep a part of the body; a body over the limit ends the transfer."""
        room = self._body_room
        self._body_room = room - len(part)
        if not self.body_in:
            # Most bodies arrive in one part.
            self.body_in = part if room >= len(part) else part[:room]
        else:
            # A bytearray: appending to bytes would copy the whole body for each part.
            held = self.body_in
            self.body_in = held if isinstance(held, bytearray) else bytearray(held)
            self.body_in += part[:room]
        return 0 if self._body_room < 0 else None

    def end(self, status: int, failure: tuple[str, str] | None) -> None:
        """Keep the result; an answer whose headers broke off is a failure, whatever its status."""
        self.failure = failure
        if status >= _FIRST_FINAL_STATUS and self._head_complete():
            self.status = status
        elif failure is None:
            self.failure = ("connection_lost", "the answer broke off in its head")

    def _head_complete(self) -> bool:
        """Whether the headers of the last answer are complete; those of an interim answer do not count."""
        for line in reversed(self.head_in):
            if line in _END_OF_HEAD:
                return True
            if line.startswith(b"HTTP/"):
                break
        return False


def classification(code: int, *, sending: bool) -> str:
    """Our classification of a libcurl error."""
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return "timeout"
    return "connection_lost" if sending else _BEFORE_SENDING.get(code, "connection_lost")
