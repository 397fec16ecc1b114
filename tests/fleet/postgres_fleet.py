"""PostgreSQL with a synchronous standby: two servers under Patroni, one etcd."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.daemon import Daemon, is_alive, send
from tests.support.ports import free_port
from tests.support.servers import find_binary
from tests.support.waiting import wait_until

TTL, LOOP = 5, 1
_SETTLED = 2 * LOOP + 1
PATIENCE = 60.0
"""Seconds in which a standby that needs no help follows again."""
_CONFIG = """scope: fleet
namespace: /fleet/
name: {name}
restapi: {{listen: "127.0.0.1:{api}", connect_address: "127.0.0.1:{api}"}}
etcd3: {{host: "127.0.0.1:{etcd}"}}
bootstrap:
  dcs:
    ttl: {ttl}
    loop_wait: {loop}
    retry_timeout: 2
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters:
        {{max_connections: 300, shared_buffers: 64MB, wal_log_hints: "on", max_wal_senders: 5, wal_keep_size: 64MB}}
  initdb: [{{encoding: UTF8}}, {{locale: C}}, {{auth-local: trust}}, {{auth-host: trust}}]
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{port}
  data_dir: {folder}/data
  bin_dir: {binaries}
  pgpass: {folder}/pgpass
  pg_hba: [local all all trust, host all all 127.0.0.1/32 trust, host replication all 127.0.0.1/32 trust]
  authentication:
    superuser: {{username: postgres, password: pw}}
    replication: {{username: replicator, password: pw}}
    rewind: {{username: rewinder, password: pw}}
  parameters: {{unix_socket_directories: {folder}, dynamic_shared_memory_type: mmap}}
watchdog: {{mode: "off"}}
"""


def asked(port: int, path: str, body: Any = None) -> tuple[int, Any]:
    """What an HTTP server of ours says; status 0 if it says nothing."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data)
    try:
        with urllib.request.urlopen(request, timeout=20 if data else 2) as answer:  # noqa: S310 - loopback
            text = answer.read()
            return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()
    except urllib.error.HTTPError as error:
        return error.code, None
    except (OSError, ValueError):
        return 0, None


class Etcd(Daemon):
    """Where Patroni keeps who leads."""

    def __init__(self) -> None:
        super().__init__("etcd")
        self.port, self._peer = free_port(), free_port()

    def command(self) -> list[str]:
        clients, peers = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer}"
        return [
            *("etcd", "--name", "e", "--data-dir", str(self.folder / "data"), "--logger", "zap"),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"e={peers}"),
        ]

    def is_up(self) -> bool:
        return asked(self.port, "/health")[0] == 200


class Node(Daemon):
    """One Patroni and its PostgreSQL, which is nobody's child and so is ended by the pid in its lock file."""

    def __init__(self, name: str, etcd: int) -> None:
        super().__init__(name, run_as="postgres" if os.geteuid() == 0 else None)
        self.name, self.port, self.api = name, free_port(), free_port()
        given = {"name": name, "api": self.api, "etcd": etcd, "ttl": TTL, "loop": LOOP, "port": self.port}
        binaries = Path(find_binary("postgres")).parent
        self._config = self.folder / "patroni.yml"
        self._config.write_text(_CONFIG.format(**given, folder=self.folder, binaries=binaries))

    def command(self) -> list[str]:
        return ["env", "LC_ALL=C.UTF-8", f"HOME={self.folder}", "patroni", str(self._config)]

    def is_up(self) -> bool:
        return asked(self.api, "/liveness")[0] != 0

    def leads(self) -> bool:
        return asked(self.api, "/primary")[0] == 200

    def postmaster(self) -> int | None:
        with suppress(OSError, ValueError, IndexError):
            return int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        return None

    def kill_all(self) -> None:
        """SIGKILL to Patroni first: otherwise it would start its PostgreSQL again."""
        postmaster = self.postmaster()
        self.kill()
        if postmaster is not None:
            send(postmaster, signal.SIGKILL)
            wait_until(lambda: not is_alive(postmaster), timeout=30, what="the killed PostgreSQL gone")

    def close(self) -> None:
        postmaster = self.postmaster()
        if self.running:
            self.stop()
        if postmaster is not None and is_alive(postmaster):
            send(postmaster, signal.SIGQUIT)
            with suppress(TimeoutError):
                wait_until(lambda: not is_alive(postmaster), timeout=10, what="an orphaned PostgreSQL gone")
        super().close()


class PostgresFleet:
    """A primary and a synchronous standby; what is acknowledged is on both."""

    def __init__(self) -> None:
        self.etcd = Etcd()
        self.nodes = [Node(f"n{number}", self.etcd.port) for number in (1, 2)]

    def start(self) -> None:
        self.etcd.start()
        first, second = self.nodes
        first.start()
        wait_until(first.leads, timeout=120, what="the first PostgreSQL leading")
        second.start()
        self.until_synchronous()

    def close(self) -> None:
        for node in reversed(self.nodes):
            node.close()
        self.etcd.close()

    def primary(self) -> Node:
        """The node that leads; raises LookupError while nobody does."""
        for node in self.nodes:
            if node.running and node.leads():
                return node
        raise LookupError("no PostgreSQL leads at the moment")

    def until_led(self, seconds: float = 60) -> Node:
        def led() -> bool:
            with suppress(LookupError):
                return self.primary() is not None
            return False

        wait_until(led, timeout=seconds, what="a PostgreSQL that leads")
        return self.primary()

    def until_synchronous(self, seconds: float = 180) -> None:
        """The leader has named its synchronous standby for a while: only then may the leader die."""
        since: list[float] = []

        def settled() -> bool:
            if not self._synchronous():
                since.clear()
                return False
            since.append(time.monotonic())
            return since[-1] - since[0] >= _SETTLED

        wait_until(settled, timeout=seconds, what="a synchronous standby")

    def switch_over(self) -> None:
        """Planned: the standby leads afterwards."""
        leader = self.primary()
        candidate = next(node for node in self.nodes if node is not leader)
        status, _ = asked(leader.api, "/switchover", {"leader": leader.name, "candidate": candidate.name})
        if status != 200:
            raise RuntimeError(f"Patroni answered the switch-over with {status}")

    def kill_primary(self) -> Node:
        node = self.primary()
        node.kill_all()
        return node

    def kill_standby(self) -> Node:
        node = next(each for each in self.nodes if each is not self.primary())
        node.kill_all()
        return node

    def heal(self) -> None:
        """Who is down is started again and becomes the standby.

        A leader that stepped down may have written bytes that nobody else has. Patroni looks for that only when it
        starts, and rewinds then: an operator would restart that Patroni, and so does this.
        """
        for node in self.nodes:
            if not node.running:
                node.start()
        try:
            self.until_synchronous(PATIENCE)
        except TimeoutError:
            leader = self.until_led()
            behind = next(node for node in self.nodes if node is not leader)
            behind.kill_all()
            behind.start()
            self.until_synchronous(2 * PATIENCE)

    def version(self) -> str:
        return (self.nodes[0].folder / "data" / "PG_VERSION").read_text().strip()

    def _synchronous(self) -> bool:
        try:
            _, found = asked(self.primary().api, "/cluster")
        except LookupError:
            return False
        return any(each.get("role") == "sync_standby" for each in (found or {}).get("members", []))
