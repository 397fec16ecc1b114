"""Free loopback ports."""

import socket


def free_port() -> int:
    # Closed before use, so another process may take it: callers that listen retry on failure.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
