"""libcurl transfers in the asyncio event loop, with an epoll of their own."""

import asyncio
import math
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import pycurl

from carillon.providers.egress import IPAddress
from carillon.providers.transfer import Transfer, classification

Veto = Callable[[IPAddress, int], bool]
"""Whether a socket may be connected to this address and port."""

# Node.js closes idle connections after 5 s; we close ours before, or a request would meet a closing peer.
_KEEP_ALIVE_SECONDS = 4
_EVENTS_AT_ONCE = 256
_IDLE_HANDLES = 1000
_SENT_AT_ONCE = 16 * 1024
"""libcurl's minimum: it allocates this buffer for each transfer, and freeing the default of 64 kB is slow."""
_TIMER_GRAIN = 0.001
"""The event loop's clock has a resolution of one millisecond."""
_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


class Limits(msgspec.Struct, frozen=True):
    """The limits of one client."""

    connections: int
    connections_per_host: int
    max_body: int
    ca_file: str | None


class _LentSocket:
    """A socket for libcurl, which duplicates its descriptor; ours closes with this object."""

    def __init__(self, opened: socket.socket) -> None:
        self._opened = opened

    def fileno(self) -> int:
        return self._opened.fileno()

    def __del__(self) -> None:
        self._opened.close()


class CurlRequest(msgspec.Struct, frozen=True):
    """One request as libcurl gets it."""

    method: str
    url: str
    lines: Sequence[str]
    """The header lines, already checked."""
    body: bytes
    seconds: float
    pins: str | None = None
    """`host:port:address,…`: the only addresses of the name."""
    max_body: int | None = None
    """How much of the answer's body is kept; None is the client's limit."""


Ended = Callable[[Transfer], None]
"""Called once with a transfer that has ended; must not raise, and must not keep the transfer, which is reused."""


class Transfers:
    """A libcurl multi handle: its connections, its timer, and an epoll that the event loop watches as one descriptor.

    One watched descriptor instead of one for each socket halves the cost of a request: libcurl changes what it waits
    for several times per request, and changing epoll is cheaper than changing the event loop.
    """

    def __init__(self, limits: Limits, veto: Veto | None) -> None:
        self._limits = limits
        self._veto = veto
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, limits.connections)
        self._multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, limits.connections_per_host)
        self._multi.setopt(pycurl.M_MAXCONNECTS, limits.connections)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._epoll = select.epoll()
        self._watched: dict[int, int] = {}
        """Descriptors, and the events that epoll watches for each."""
        self._parked: set[int] = set()
        """Descriptors of idle connections: epoll still watches them, so that the next request needs one change instead
        of a removal and an addition. A parked descriptor may be closed, and its number reused by another socket."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        """When libcurl wants to be called; the timer may fire earlier and is then set again, but never later."""
        self._soon: asyncio.Handle | None = None
        self._idle: list[Transfer] = []
        self._running: dict[pycurl.Curl, tuple[Transfer, Ended]] = {}
        self._loop.add_reader(self._epoll.fileno(), self._ready)

    def start(self, request: CurlRequest, ended: Ended) -> Transfer | str:
        """Begin a transfer; returns an error text if the request is malformed."""
        transfer = self._idle.pop() if self._idle else self._transfer()
        try:
            self._prepare(transfer, request)
        except (pycurl.error, UnicodeError, ValueError) as error:
            transfer.handle.close()
            return f"the request is malformed: {error}"
        self._running[transfer.handle] = (transfer, ended)
        self._multi.add_handle(transfer.handle)
        return transfer

    def cancel(self, transfer: Transfer, ended: Ended) -> None:
        """End a transfer without calling `ended`."""
        # Only while it belongs to this caller: a finished handle may already serve another request.
        if self._running.get(transfer.handle) == (transfer, ended):
            del self._running[transfer.handle]
            self._multi.remove_handle(transfer.handle)
            transfer.handle.close()

    def close(self) -> None:
        for handle in list(self._running):
            self._finish(handle, ("closed", "the client was closed"))
        for transfer in self._idle:
            transfer.handle.close()
        for timer in (self._timer, self._soon):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        self._multi.close()
        self._epoll.close()

    def _transfer(self) -> Transfer:
        handle = pycurl.Curl()
        transfer = Transfer(handle)
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.FOLLOWLOCATION, 0)
        handle.setopt(pycurl.PROXY, "")
        handle.setopt(pycurl.NETRC, pycurl.NETRC_IGNORED)
        handle.setopt(pycurl.PATH_AS_IS, 1)
        handle.setopt(pycurl.TCP_NODELAY, 1)
        handle.setopt(pycurl.USERAGENT, "Carillon")
        handle.setopt(pycurl.MAXAGE_CONN, _KEEP_ALIVE_SECONDS)
        handle.setopt(pycurl.UPLOAD, 1)
        handle.setopt(pycurl.UPLOAD_BUFFERSIZE, _SENT_AT_ONCE)
        authorities = self._limits.ca_file or _system_authorities()
        if authorities is not None:
            handle.setopt(pycurl.CAINFO, authorities)
        if self._veto is not None:
            handle.setopt(pycurl.DNS_CACHE_TIMEOUT, 0)
            handle.setopt(pycurl.OPENSOCKETFUNCTION, _opener(transfer, self._veto))
            handle.setopt(pycurl.SOCKOPTFUNCTION, self._opened)
        return transfer

    def _prepare(self, transfer: Transfer, request: CurlRequest) -> None:
        transfer.renew(request.body, self._limits.max_body if request.max_body is None else request.max_body)
        setopt = transfer.handle.setopt
        asked = (request.method, request.url, request.pins)
        if transfer.asked != asked:
            setopt(pycurl.URL, request.url)
            setopt(pycurl.CUSTOMREQUEST, request.method)
        if self._veto is not None and (transfer.asked != asked or request.pins is not None):
            # Every time: handles share one DNS cache, and another handle may have changed it.
            setopt(pycurl.RESOLVE, [] if request.pins is None else [request.pins])
        transfer.asked = asked
        bounds = (len(request.body), max(1, round(request.seconds * 1000)))
        if transfer.bounds != bounds:
            transfer.bounds = bounds
            setopt(pycurl.INFILESIZE, bounds[0])
            setopt(pycurl.TIMEOUT_MS, bounds[1])
        # No `Expect`: waiting for a 100 before a small body would cost a round trip.
        setopt(pycurl.HTTPHEADER, [*request.lines, "Expect:", "Accept-Encoding: identity"])

    def _watch(self, what: int, descriptor: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            self._parked.add(descriptor)
            return
        mask = select.EPOLLIN if what & pycurl.POLL_IN else 0
        if what & pycurl.POLL_OUT:
            mask |= select.EPOLLOUT
        self._parked.discard(descriptor)
        known = self._watched.get(descriptor)
        if known == mask and self._veto is not None:
            # The same socket: `_opened` reports each new one. Without a veto libcurl also opens sockets for DNS.
            return
        self._watched[descriptor] = mask
        if known is None:
            self._epoll.register(descriptor, mask)
            return
        try:
            self._epoll.modify(descriptor, mask)
        except FileNotFoundError:
            # The socket was closed while parked, and a new one has its number.
            self._epoll.register(descriptor, mask)

    def _opened(self, descriptor: int, _purpose: int) -> int:
        """Forget the closed socket that had this number: epoll no longer watches it."""
        self._watched.pop(descriptor, None)
        self._parked.discard(descriptor)
        return int(pycurl.SOCKOPT_OK)

    def _unwatch(self, descriptor: int) -> None:
        """Stop watching an idle connection that its peer closed or wrote to; libcurl checks it before the next use."""
        self._parked.discard(descriptor)
        self._watched.pop(descriptor, None)
        with suppress(OSError):
            self._epoll.unregister(descriptor)

    def _set_timer(self, milliseconds: int) -> None:
        if milliseconds == 0:
            # libcurl must not be called from inside its own callback.
            if self._soon is None:
                self._soon = self._loop.call_soon(self._act)
        elif milliseconds < 0:
            self._due = math.inf
        else:
            self._due = self._loop.time() + milliseconds / 1000
            if self._timer is None or self._due < self._timer.when():
                self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        if self._due - self._loop.time() <= _TIMER_GRAIN:
            self._act()
        elif self._due < math.inf:
            self._arm()

    def _act(self) -> None:
        self._soon = None
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()

    def _ready(self) -> None:
        for descriptor, event in self._epoll.poll(0, _EVENTS_AT_ONCE):
            if descriptor in self._parked:
                self._unwatch(descriptor)
                continue
            flags = pycurl.CSELECT_IN if event & select.EPOLLIN else 0
            if event & select.EPOLLOUT:
                flags |= pycurl.CSELECT_OUT
            if event & (select.EPOLLERR | select.EPOLLHUP):
                flags |= pycurl.CSELECT_ERR
            self._multi.socket_action(descriptor, flags)
        self._collect()

    def _collect(self) -> None:
        left = 1
        while left:
            left, finished, failed = self._multi.info_read()
            for handle in finished:
                self._finish(handle, None)
            for handle, code, text in failed:
                sending = self._running[handle][0].began_sending
                self._finish(handle, (classification(code, sending=sending), text))

    def _finish(self, handle: pycurl.Curl, failure: tuple[str, str] | None) -> None:
        transfer, ended = self._running.pop(handle)
        self._multi.remove_handle(handle)
        transfer.end(handle.getinfo(pycurl.RESPONSE_CODE), failure)
        ended(transfer)
        if len(self._idle) < _IDLE_HANDLES:
            self._idle.append(transfer)
        else:
            handle.close()


def _opener(transfer: Transfer, veto: Veto) -> Callable[[int, Any], _LentSocket | int]:
    def open_socket(_purpose: int, place: Any) -> _LentSocket | int:  # noqa: ANN401 - pycurl's own tuple
        family, kind, protocol, address = place
        # The last check, of the exact address that connect gets.
        if not veto(ip_address(_text(address[0])), address[1]):
            transfer.vetoed = True
            return pycurl.SOCKET_BAD
        return _LentSocket(socket.socket(family, kind, protocol))

    return open_socket


@lru_cache(maxsize=1)
def _system_authorities() -> str | None:
    # The libcurl of a wheel does not know where this system keeps its certificates.
    known = (ssl.get_default_verify_paths().cafile, *_AUTHORITIES)
    return next((path for path in known if path and Path(path).is_file()), None)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
