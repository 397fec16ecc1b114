"""Free loopback ports."""

import os
import random
import socket
from collections import deque
from pathlib import Path

_LOWEST = 10_240
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_HELD = 64
_given: set[int] = set()
_held: deque[int] = deque()
"""Descriptors of the marks of the ports that were given last."""


def free_port() -> int:
    """A port on which nobody listens, different at every call in this process, and lately given to no other.

    The port is closed before it is used, so it lies below the range that the system gives to outgoing connections: a
    busy run opens thousands of them, and sooner or later one would take the port.
    """
    below = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = random.SystemRandom().randrange(_LOWEST, below)
        if port not in _given and _is_free(port) and _mark(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _mark(port: int) -> bool:
    """Whether nobody else has marked the port: eight workers that choose at random meet now and then.

    The system frees the mark, a name of a socket, when this process ends.
    """
    mark = socket.socket(socket.AF_UNIX)
    try:
        mark.bind(f"\0carillon-test-port-{port}")
    except OSError:
        mark.close()
        return False
    _held.append(mark.detach())
    if len(_held) > _HELD:
        os.close(_held.popleft())
    return True
