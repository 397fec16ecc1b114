"""The servers that a fleet works on: each alone, or in its highly available form with HAProxy before it."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.fleet.postgres_fleet import PostgresFleet
from tests.fleet.rabbit_fleet import RabbitFleet
from tests.fleet.redis_fleet import SentinelFleet
from tests.support.daemon import Daemon
from tests.support.kafka import Kafka
from tests.support.ports import free_port
from tests.support.proxy import FaultProxy
from tests.support.rabbitmq import RabbitMQ
from tests.support.servers import Postgres, Redis, find_binary

PASSWORD = "fleet-secret"
_HEAD = """defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    timeout check 1s
    default-server inter 300ms fastinter 200ms downinter 300ms fall 2 rise 1 on-marked-down shutdown-sessions
"""
_POSTGRES = """listen postgres
    bind 127.0.0.1:{port}
    option httpchk OPTIONS /primary
    http-check expect status 200
{servers}
"""
_REDIS = """listen redis
    bind 127.0.0.1:{port}
    balance first
    option tcp-check
    tcp-check connect
    tcp-check send AUTH\\ {password}\\r\\n
    tcp-check expect string +OK
    tcp-check send INFO\\ replication\\r\\n
    tcp-check expect string role:master
    tcp-check send QUIT\\r\\n
{servers}
"""
_RABBIT = """listen rabbit
    bind 127.0.0.1:{port}
    balance leastconn
{servers}
"""


class HaProxy(Daemon):
    """One address for each kind of server, behind which the one that may be written to answers."""

    def __init__(self, postgres: PostgresFleet, redis: SentinelFleet, rabbit: RabbitFleet) -> None:
        super().__init__("haproxy")
        self.postgres_port, self.redis_port, self.rabbit_port = free_port(), free_port(), free_port()
        nodes = [f"    server {node.name} 127.0.0.1:{node.port} check port {node.api}" for node in postgres.nodes]
        replicas = [f"    server r{port} 127.0.0.1:{port} check" for port in redis.ports]
        brokers = [f"    server q{port} 127.0.0.1:{port} check" for port in rabbit.ports]
        text = _HEAD + _POSTGRES.format(port=self.postgres_port, servers="\n".join(nodes))
        text += _REDIS.format(port=self.redis_port, servers="\n".join(replicas), password=PASSWORD)
        text += _RABBIT.format(port=self.rabbit_port, servers="\n".join(brokers))
        (self.folder / "haproxy.cfg").write_text(text)

    def command(self) -> list[str]:
        return ["haproxy", "-db", "-f", str(self.folder / "haproxy.cfg")]

    def is_up(self) -> bool:
        return True


class Relay:
    """A way to a server that can be cut, slow, silent or silent in one direction."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._loop = loop
        self.proxy = FaultProxy("127.0.0.1", port)
        self.proxy.port = free_port()
        asyncio.run_coroutine_threadsafe(self.proxy.__aenter__(), loop).result(20)

    @property
    def port(self) -> int:
        return self.proxy.port

    def do(self, change: Callable[[FaultProxy], object]) -> None:
        """Change it inside its own loop."""

        async def changed() -> None:
            change(self.proxy)

        asyncio.run_coroutine_threadsafe(changed(), self._loop).result(20)

    def heal(self) -> None:
        self.do(lambda proxy: proxy.heal())

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.proxy.__aexit__(), self._loop).result(20)


class Ways:
    """Two relays before each server: the first process of each blueprint takes one, the others take the other."""

    def __init__(self, **ports: int) -> None:
        self._loop = asyncio.new_event_loop()
        # Connections that end with their relay are cancelled, which is nobody's error.
        self._loop.set_exception_handler(lambda *_: None)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._relays = {name: [Relay(self._loop, port) for _ in range(2)] for name, port in ports.items()}

    def port(self, server: str, number: int) -> int:
        return self._relays[server][min(number, 1)].port

    def of_first(self, *servers: str) -> list[Relay]:
        return [self._relays[name][0] for name in servers or self._relays]

    def all(self, *servers: str) -> list[Relay]:
        return [relay for name in servers or self._relays for relay in self._relays[name]]

    def close(self) -> None:
        for relay in self.all():
            relay.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Servers:
    """What every topology has: four kinds of servers and the ways to them."""

    ways: Ways
    postgres_port: int
    redis_port: int
    rabbit_port: int

    def __init__(self) -> None:
        self.kafka = Kafka(brokers=3)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
            self._stack.enter_context(self.kafka)
            ports = {"ledger": self.postgres_port, "redis": self.redis_port, "rabbit": self.rabbit_port}
            self.ways = Ways(**ports)
            self._stack.callback(self.ways.close)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        raise NotImplementedError

    def heal(self) -> None:
        """Whatever is down or stopped runs again."""
        raise NotImplementedError

    def dsn(self, database: str, number: int | None = None) -> str:
        """Past the relays without a number; else as the process of that number reaches it."""
        port = self.postgres_port if number is None else self.ways.port("ledger", number)
        return f"postgresql://postgres@127.0.0.1:{port}/{database}"

    def redis_url(self, database: int = 0, number: int | None = None) -> str:
        port = self.redis_port if number is None else self.ways.port("redis", number)
        return f"redis://:{PASSWORD}@127.0.0.1:{port}/{database}"

    def rabbit_url(self, number: int | None = None) -> str:
        port = self.rabbit_port if number is None else self.ways.port("rabbit", number)
        return f"amqp://guest:guest@127.0.0.1:{port}/"

    def create(self, database: str) -> str:
        """A new database; its DSN past the relays."""
        psql = [find_binary("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", f"CREATE DATABASE {database}"]
        done = subprocess.run([*psql, self.dsn("postgres")], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"{database}: {done.stderr}")
        return self.dsn(database)


class PlainServers(Servers):
    """One of each: what `make test` has."""

    def __init__(self) -> None:
        super().__init__()
        self.postgres = Postgres(durable=True, settings={"max_connections": "300"})
        self.redis = Redis(password=PASSWORD, appendonly=True)
        self.rabbit = RabbitMQ()

    def _start(self) -> None:
        for each in (self.postgres, self.redis, self.rabbit):
            self._stack.enter_context(each)
        self.postgres_port, self.redis_port, self.rabbit_port = self.postgres.port, self.redis.port, self.rabbit.port

    def heal(self) -> None:
        for each in (self.postgres, self.redis, self.rabbit):
            if each.running:
                each.resume()
            else:
                each.start()
        self.kafka.tell("up", 2)


class WholeServers(Servers):
    """Each in its highly available form."""

    def __init__(self) -> None:
        super().__init__()
        self.postgres = PostgresFleet()
        self.redis = SentinelFleet(PASSWORD)
        self.rabbit = RabbitFleet()
        self.haproxy = HaProxy(self.postgres, self.redis, self.rabbit)

    def _start(self) -> None:
        for each in (self.postgres, self.redis, self.rabbit):
            self._stack.callback(each.close)
        self._stack.callback(self.haproxy.close)
        self.haproxy.start()
        self.postgres_port = self.haproxy.postgres_port
        self.redis_port, self.rabbit_port = self.haproxy.redis_port, self.haproxy.rabbit_port
        for each in (self.postgres, self.redis, self.rabbit):
            each.start()

    def heal(self) -> None:
        for each in (self.postgres.etcd, *self.postgres.nodes, *self.redis.servers, *self.rabbit.nodes):
            if each.running:
                each.resume()
        self.kafka.tell("up", 2)
        for fleet in (self.postgres, self.redis, self.rabbit):
            fleet.heal()


class SmallDisk:
    """A file system of its own that can be full or frozen; without root a plain folder that can be neither."""

    def __init__(self, folder: Path, megabytes: int = 1024) -> None:
        """Large enough for half an hour of notifications: full it is only when a fault fills it."""
        self.folder = folder / "disk"
        self.folder.mkdir()
        self._image = folder / "disk.img"
        self.real = False
        if os.geteuid() == 0:
            self._image.touch()
            os.truncate(self._image, megabytes << 20)
            done = self._run("mkfs.ext4", "-q", "-m", "0", str(self._image))
            self.real = done and self._run("mount", "-o", "loop", str(self._image), str(self.folder))

    def fill(self) -> None:
        """Until no byte is left."""
        ballast = self.folder / "ballast"
        free = os.statvfs(self.folder)
        self._run("fallocate", "-l", str(free.f_bavail * free.f_frsize), str(ballast))
        # Unbuffered: what is left in a buffer would fail once more when the file is closed.
        with ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 4096)
            except OSError:
                return

    def empty(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Every write waits."""
        self._run("fsfreeze", "-f", str(self.folder))

    def thaw(self) -> None:
        self._run("fsfreeze", "-u", str(self.folder))

    def heal(self) -> None:
        if self.real:
            self.thaw()
        self.empty()

    def close(self) -> None:
        if self.real:
            self.thaw()
            self._run("umount", str(self.folder))

    @staticmethod
    def _run(*command: str) -> bool:
        done: subprocess.CompletedProcess[Any] = subprocess.run(command, capture_output=True, check=False, timeout=30)
        return done.returncode == 0
