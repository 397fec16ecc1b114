"""Free loopback ports."""

import random
import socket
from pathlib import Path

_LOWEST = 10_240
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_given: set[int] = set()


def free_port() -> int:
    """A port on which nobody listens, different at every call in this process.

    The port is closed before it is used, so it lies below the range that the system gives to outgoing connections: a
    busy run opens thousands of them, and sooner or later one would take the port.
    """
    below = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = random.SystemRandom().randrange(_LOWEST, below)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
