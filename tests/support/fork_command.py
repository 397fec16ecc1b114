"""A `carillon` for the PATH of a shell: a small script that has the fork server run the command, on its own files."""

import contextlib
import os
import select
import socket
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import msgspec

from tests.support.forkserver import Forked, can_fork, fork
from tests.support.process import carillon_command

_LONGEST_REQUEST = 1 << 17
_FILES = 3
# Without the site's packages the interpreter starts in a hundredth of a second.
_SCRIPT = """#!{python} -IS
import json, os, signal, socket, sys
asked = json.dumps(dict(words=sys.argv[1:], env=dict(os.environ), cwd=os.getcwd())).encode()
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
socket.send_fds(server, [asked], [0, 1, 2])
said = server.recv(16)
if said == b"start it":
    os.execv({command!r}, [{command!r}, *sys.argv[1:]])
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(int(said), number))
code = int(server.recv(16))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class _Request(msgspec.Struct):
    words: list[str]
    env: dict[str, str]
    cwd: str


class ForkCommand:
    """A folder with the script, and the threads that answer it; a script that is killed takes its command along."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="cn-", ignore_cleanup_errors=True)
        self.folder = Path(self._folder.name)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.folder / "asked"))
        self._listener.listen()
        script = self.folder / "carillon"
        address = str(self.folder / "asked")
        script.write_text(_SCRIPT.format(python=sys.executable, address=address, command=carillon_command()[0]))
        script.chmod(0o755)

    def __enter__(self) -> Self:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread that accepts; a closed descriptor would not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._folder.cleanup()

    def _listen(self) -> None:
        with self._listener, contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection:
        text, files, _, _ = socket.recv_fds(connection, _LONGEST_REQUEST, _FILES)
        try:
            request = msgspec.json.decode(text, type=_Request)
            if not can_fork(request.env):
                connection.send(b"start it")
                return
            child = fork(request.words, request.env, Path(request.cwd), files)
        finally:
            for number in files:
                os.close(number)
        connection.send(str(child.pid).encode())
        _wait(child, connection)
        with contextlib.suppress(OSError):
            connection.send(str(child.wait()).encode())


def _wait(child: Forked, connection: socket.socket) -> None:
    """Until the command has ended or its script has been killed."""
    watch = select.poll()
    watch.register(child, select.POLLIN)
    watch.register(connection, select.POLLIN | select.POLLHUP)
    watch.poll()
    if not child.has_ended():
        child.kill()
