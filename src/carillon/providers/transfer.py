"""One HTTP request on its way through libcurl, and what came of it."""

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
    """A handle of libcurl with one request after the other; what came of the last one stands here until the next.

    Its callbacks are told to libcurl once, not for each request.
    """

    __slots__ = (
        *("handle", "asked", "bounds", "status", "head_in", "body_in", "failure", "began_sending", "vetoed"),
        *("_body", "_read", "_head_room", "_body_room"),
    )

    def __init__(self, handle: pycurl.Curl) -> None:
        self.handle = handle
        self.asked: tuple[str, str, str | None] | None = None
        """Method, URL and pinned addresses that the handle was told last and does not have to be told again."""
        self.bounds = (-1, -1)
        """The same of the body's size and the milliseconds."""
        self.renew(b"", 0)
        handle.setopt(pycurl.READFUNCTION, self.read)
        handle.setopt(pycurl.PREREQFUNCTION, self.begin)
        handle.setopt(pycurl.HEADERFUNCTION, self.hear)
        handle.setopt(pycurl.WRITEFUNCTION, self.take)

    def renew(self, body: bytes, max_body: int) -> None:
        """Forget the last request; what it brought belongs to whoever asked for it."""
        self.status = 0
        self.head_in: list[bytes] = []
        self.body_in: bytes | bytearray = b""
        self.failure: tuple[str, str] | None = None
        """Classification and text of what broke, if anything did."""
        self.began_sending = False
        self.vetoed = False
        self._body = body
        self._read = 0
        self._head_room = _MAX_HEAD
        self._body_room = max_body

    def read(self, size: int) -> bytes:
        """Give libcurl the body; without a way to rewind, it cannot send a request twice behind our back."""
        part = self._body[self._read : self._read + size]
        self._read += len(part)
        return part

    def begin(self, _address: str, _own: str, _port: int, _own_port: int) -> int:
        """Called when a connection is there and nothing has been written: from now on it may have been sent."""
        self.began_sending = True
        return int(pycurl.PREREQFUNC_OK)

    def hear(self, line: bytes) -> int | None:
        """Take in one line of the head, or end the transfer by taking nothing; lines are read when asked for."""
        self._head_room -= len(line)
        if self._head_room < 0:
            return 0
        self.head_in.append(line)
        return None

    def take(self, part: bytes) -> int | None:
        """Take in a part of the body; anything but all of it ends the transfer."""
        room = self._body_room
        self._body_room = room - len(part)
        if not self.body_in:
            # Most bodies come in one part.
            self.body_in = part if room >= len(part) else part[:room]
        else:
            # Not bytes to bytes: a body that drips in would be copied for every drop.
            held = self.body_in
            self.body_in = held if isinstance(held, bytearray) else bytearray(held)
            self.body_in += part[:room]
        return 0 if self._body_room < 0 else None

    def end(self, status: int, failure: tuple[str, str] | None) -> None:
        """Keep what it came to; half a head is no answer, whatever its first line said."""
        self.failure = failure
        if status >= _FIRST_FINAL_STATUS and self._heard():
            self.status = status
        elif failure is None:
            self.failure = ("connection_lost", "the answer broke off in its head")

    def _heard(self) -> bool:
        """Whether the last answer's head came to its end; an interim one's does not count for the next."""
        for line in reversed(self.head_in):
            if line in _END_OF_HEAD:
                return True
            if line.startswith(b"HTTP/"):
                break
        return False


def classification(code: int, *, sending: bool) -> str:
    """The word for what broke a transfer."""
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return "timeout"
    return "connection_lost" if sending else _BEFORE_SENDING.get(code, "connection_lost")
