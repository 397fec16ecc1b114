"""A stranger against a listener, for a bounded time: `python -m bench.runners.stranger KIND URL PATH SECONDS`."""

import json
import selectors
import socket
import sys
import time

from tests.support.strangers import HEAD, Stranger, get, post

RENEWALS_PER_SECOND = 500
"""How many connections that the server closed are opened again."""
HELD = {"idle": 4100, "slow heads": 1040, "slow bodies": 1040, "half-closed": 1040, "huge": 8, "many": 64}
"""Kind to the number of connections held at once."""


def words(kind: str, path: str) -> bytes:
    """What the stranger says on each connection before it falls silent."""
    chunked = f"POST {path} HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n"
    return {
        "idle": b"",
        "slow heads": b"G",
        "slow bodies": post(path, 2) + b"{",
        "half-closed": b"GET / HT",
        "huge": chunked.encode() + b"80000\r\n" + b" " * 0x80000 + b"\r\n",
        "many": get(path, ""),
    }[kind]


class Crowd:
    """Connections of one address that are opened again when the server closes them."""

    def __init__(self, kind: str, url: str, path: str) -> None:
        self._kind = kind
        self._words = words(kind, path)
        self._stranger = Stranger(url)
        self._selector = selectors.DefaultSelector()
        self._missing = HELD[kind]

    def fill(self) -> None:
        """Open what is missing; a listener that takes no more for now is asked again later."""
        for _ in range(self._missing):
            try:
                connection = self._stranger.connect(seconds=0.2)
                connection.settimeout(0.2)
                connection.sendall(self._words)
                if self._kind == "half-closed":
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                break
            self._missing -= 1
            self._selector.register(connection, selectors.EVENT_READ, connection)
        # The list only serves to close all of them at the end of a block.
        self._stranger.connections.clear()

    def run(self, seconds: float) -> None:
        """Renew connections, or ask the next question, until the time is over."""
        until = time.monotonic() + seconds
        renewed = 0.0
        while (now := time.monotonic()) < until:
            for key, _ in self._selector.select(0.01):
                self._heard(key.data)
            if self._missing and now - renewed > self._missing / RENEWALS_PER_SECOND:
                renewed = now
                self.fill()

    def _heard(self, connection: socket.socket) -> None:
        try:
            said = connection.recv(65_536)
            if said and self._kind == "many":
                connection.sendall(self._words)
        except OSError:
            said = b""
        if not said:
            self._selector.unregister(connection)
            connection.close()
            self._missing += 1


def main(kind: str, url: str, path: str, seconds: float) -> None:
    """Say `ready` once the first connections are held."""
    crowd = Crowd(kind, url, path)
    crowd.fill()
    print(json.dumps({"event": "ready"}), flush=True)
    crowd.run(seconds)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
