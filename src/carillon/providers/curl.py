"""libcurl's transfers inside our event loop, by a selector of their own."""

import asyncio
import select
import socket
import ssl
from collections.abc import Callable
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

# Node closes idle connections after 5 s; ours must be gone before, or a request meets a closing peer.
_KEEP_ALIVE_SECONDS = 4
_EVENTS_AT_ONCE = 256
_IDLE_HANDLES = 1000
_AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


class Limits(msgspec.Struct, frozen=True):
    """What one client may use."""

    connections: int
    connections_per_host: int
    max_body: int
    ca_file: str | None


class _Lent:
    """A socket for libcurl, which takes a copy of its descriptor; ours closes with this object."""

    def __init__(self, opened: socket.socket) -> None:
        self._opened = opened

    def fileno(self) -> int:
        return self._opened.fileno()

    def __del__(self) -> None:
        self._opened.close()


class Transfers:
    """A multi handle: its connections, its timer, and an epoll that the loop watches as one descriptor.

    One watched descriptor instead of one for each socket halves the cost of a request: libcurl changes what it waits
    for several times in each, and that is cheaper said to epoll than to the loop.
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
        self._watched: set[int] = set()
        self._timer: asyncio.Handle | None = None
        self._idle: list[pycurl.Curl] = []
        self._set: dict[pycurl.Curl, tuple[str, str, str | None]] = {}
        """What each handle was told last and does not have to be told again: method, URL and pinned addresses."""
        self._running: dict[pycurl.Curl, tuple[Transfer, asyncio.Future[None]]] = {}
        self._loop.add_reader(self._epoll.fileno(), self._ready)

    async def run(self, transfer: Transfer) -> None:
        """Carry out one transfer; what came of it stands in the transfer."""
        handle = self._idle.pop() if self._idle else self._handle()
        done: asyncio.Future[None] = self._loop.create_future()
        try:
            self._prepare(handle, transfer)
        except (pycurl.error, UnicodeError, ValueError) as error:
            transfer.failure = ("bad_request", f"the request is malformed: {error}")
            self._discard(handle)
            return
        self._running[handle] = (transfer, done)
        self._multi.add_handle(handle)
        try:
            await done
        except asyncio.CancelledError:
            # Only while it is still ours: a finished handle may already carry somebody else's transfer.
            if self._running.get(handle, (None, None))[1] is done:
                del self._running[handle]
                self._multi.remove_handle(handle)
                self._discard(handle)
            raise

    def close(self) -> None:
        for handle in list(self._running):
            self._finish(handle, ("closed", "the client was closed"))
        for handle in self._idle:
            handle.close()
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        self._multi.close()
        self._epoll.close()

    def _handle(self) -> pycurl.Curl:
        handle = pycurl.Curl()
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
        authorities = self._limits.ca_file or _system_authorities()
        if authorities is not None:
            handle.setopt(pycurl.CAINFO, authorities)
        if self._veto is not None:
            handle.setopt(pycurl.DNS_CACHE_TIMEOUT, 0)
            handle.setopt(pycurl.OPENSOCKETFUNCTION, self._opener(handle, self._veto))
        return handle

    def _discard(self, handle: pycurl.Curl) -> None:
        self._set.pop(handle, None)
        handle.close()

    def _prepare(self, handle: pycurl.Curl, transfer: Transfer) -> None:
        transfer.limit(self._limits.max_body)
        asked = (transfer.method, transfer.url, transfer.pins)
        if self._set.get(handle) != asked or transfer.pins is not None:
            self._set[handle] = asked
            handle.setopt(pycurl.URL, transfer.url)
            handle.setopt(pycurl.CUSTOMREQUEST, transfer.method)
            if self._veto is not None:
                handle.setopt(pycurl.RESOLVE, [] if transfer.pins is None else [transfer.pins])
        handle.setopt(pycurl.INFILESIZE, len(transfer.body))
        handle.setopt(pycurl.READFUNCTION, transfer.read)
        handle.setopt(pycurl.PREREQFUNCTION, transfer.begin)
        headers = [f"{name}: {value}" if value else f"{name};" for name, value in transfer.headers.items()]
        # Waiting for a 100 before a small body would cost a round trip.
        handle.setopt(pycurl.HTTPHEADER, [*headers, "Expect:", "Accept-Encoding: identity"])
        handle.setopt(pycurl.HEADERFUNCTION, transfer.hear)
        handle.setopt(pycurl.WRITEFUNCTION, transfer.take)
        handle.setopt(pycurl.TIMEOUT_MS, max(1, round(transfer.seconds * 1000)))

    def _opener(self, handle: pycurl.Curl, veto: Veto) -> Callable[[int, Any], _Lent | int]:
        def open_socket(_purpose: int, place: Any) -> _Lent | int:  # noqa: ANN401 - pycurl's own tuple
            family, kind, protocol, address = place
            # The last look, at the very address that connect will be given.
            if not veto(ip_address(_text(address[0])), address[1]):
                self._running[handle][0].vetoed = True
                return pycurl.SOCKET_BAD
            return _Lent(socket.socket(family, kind, protocol))

        return open_socket

    def _watch(self, what: int, descriptor: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            if descriptor in self._watched:
                self._watched.discard(descriptor)
                self._epoll.unregister(descriptor)
            return
        mask = select.EPOLLIN if what & pycurl.POLL_IN else 0
        if what & pycurl.POLL_OUT:
            mask |= select.EPOLLOUT
        if descriptor in self._watched:
            self._epoll.modify(descriptor, mask)
        else:
            self._watched.add(descriptor)
            self._epoll.register(descriptor, mask)

    def _set_timer(self, milliseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if milliseconds == 0:
            # libcurl forbids calling it back from inside its own callback.
            self._timer = self._loop.call_soon(self._time_out)
        elif milliseconds > 0:
            self._timer = self._loop.call_later(milliseconds / 1000, self._time_out)

    def _time_out(self) -> None:
        self._timer = None
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()

    def _ready(self) -> None:
        for descriptor, event in self._epoll.poll(0, _EVENTS_AT_ONCE):
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
        transfer, done = self._running.pop(handle)
        self._multi.remove_handle(handle)
        transfer.end(handle.getinfo(pycurl.RESPONSE_CODE), failure)
        if len(self._idle) < _IDLE_HANDLES:
            self._idle.append(handle)
        else:
            self._discard(handle)
        if not done.done():
            done.set_result(None)


@lru_cache(maxsize=1)
def _system_authorities() -> str | None:
    # A libcurl from a wheel does not know where this system keeps its certificates.
    known = (ssl.get_default_verify_paths().cafile, *_AUTHORITIES)
    return next((path for path in known if path and Path(path).is_file()), None)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
