"""Redis in its two highly available forms: a primary with replicas under Sentinel, and a Cluster of six."""

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis
from redis.exceptions import RedisError

from tests.support.ports import free_port
from tests.support.servers import Redis
from tests.support.waiting import wait_until

NAME = "fleet"
SLOTS = 16384


class Replica(Redis):
    """A Redis that may follow another one, and keeps every write."""

    def __init__(self, password: str) -> None:
        super().__init__(password=password, appendonly=True)
        self.follows: int | None = None
        self.settings = {"masterauth": password, "repl-diskless-sync-delay": "0", "repl-timeout": "5"}
        self.settings |= {"appendfsync": "everysec", "min-replicas-to-write": "1", "min-replicas-max-lag": "2"}

    def command(self) -> list[str]:
        following = [] if self.follows is None else ["--replicaof", f"127.0.0.1 {self.follows}"]
        return [*super().command(), *following]


class Sentinel(Redis):
    """One of those who agree on a new primary; it rewrites its own settings."""

    def __init__(self, primary: int, password: str) -> None:
        super().__init__()
        self._file = self.folder / "sentinel.conf"
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.folder}",
            f"sentinel monitor {NAME} 127.0.0.1 {primary} 2",
        ]
        lines += [f"sentinel auth-pass {NAME} {password}", f"sentinel down-after-milliseconds {NAME} 1000"]
        lines += [f"sentinel failover-timeout {NAME} 3000", f"sentinel parallel-syncs {NAME} 2"]
        self._file.write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [self.binary(), str(self._file), "--sentinel"]


class SentinelFleet:
    """A primary, two replicas and three sentinels."""

    def __init__(self, password: str) -> None:
        self.password = password
        self.servers = [Replica(password) for _ in range(3)]
        for replica in self.servers[1:]:
            replica.follows = self.servers[0].port
        self.sentinels: list[Sentinel] = []

    @property
    def ports(self) -> list[int]:
        return [server.port for server in self.servers]

    def start(self) -> None:
        for server in self.servers:
            server.start()
        self.sentinels = [Sentinel(self.servers[0].port, self.password) for _ in range(3)]
        for sentinel in self.sentinels:
            sentinel.start()
        self.until_whole()

    def close(self) -> None:
        for each in (*self.sentinels, *self.servers):
            each.close()

    def primary(self) -> Replica:
        """As the sentinels say."""
        for sentinel in self.sentinels:
            with suppress(RedisError), redis.Redis(port=sentinel.port, socket_timeout=2) as client:
                _, port = client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", NAME)
                return next(server for server in self.servers if server.port == int(port))
        raise LookupError("no sentinel answers")

    def kill_primary(self) -> Replica:
        primary = self.primary()
        primary.kill()
        return primary

    def until_led_by_other(self, than: Replica, seconds: float = 60) -> None:
        def led() -> bool:
            # A sentinel that is slow to answer says nothing about who leads.
            with suppress(LookupError):
                return self.primary() is not than
            return False

        wait_until(led, timeout=seconds, what="another primary of Redis")

    def heal(self) -> None:
        """Who is down comes back as a replica of the primary of today: as a second primary it would take writes."""
        today = self.primary()
        for server in self.servers:
            if not server.running:
                server.follows = today.port
                server.start()
        self.until_whole()

    def until_whole(self, seconds: float = 90) -> None:
        def whole() -> bool:
            found = [self._seen(sentinel) for sentinel in self.sentinels]
            return all(each == (2, 2) for each in found) and self._replicas() == 2

        wait_until(whole, timeout=seconds, what="two replicas and three sentinels")

    def _replicas(self) -> int:
        with suppress(RedisError, LookupError), self._client(self.primary()) as client:
            info: dict[str, Any] = client.info("replication")
            return sum(info.get(f"slave{number}", {}).get("state") == "online" for number in range(4))
        return 0

    def _client(self, server: Redis) -> "redis.Redis":
        return redis.Redis(port=server.port, password=self.password, socket_timeout=2)

    def _seen(self, sentinel: Sentinel) -> tuple[int, int]:
        with suppress(RedisError), redis.Redis(port=sentinel.port, socket_timeout=2) as client:
            found: dict[str, Any] = client.sentinel_master(NAME)
            return found["num-other-sentinels"], found["num-slaves"]
        return 0, 0


class ClusterNode(Redis):
    """One node of a Redis Cluster."""

    def __init__(self) -> None:
        super().__init__(appendonly=True)
        self.settings = {
            "cluster-enabled": "yes",
            "cluster-port": str(free_port()),
            "cluster-config-file": "nodes.conf",
        }
        self.settings |= {"cluster-node-timeout": "15000", "cluster-require-full-coverage": "no"}
        self.settings |= {"repl-diskless-sync-delay": "0", "appendfsync": "everysec"}


class RedisCluster:
    """Three primaries with a replica each."""

    def __init__(self) -> None:
        self.nodes = [ClusterNode() for _ in range(6)]

    @property
    def url(self) -> str:
        return self.nodes[0].url()

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        addresses = [f"127.0.0.1:{node.port}" for node in self.nodes]
        self._cli("--cluster", "create", *addresses, "--cluster-replicas", "1", "--cluster-yes")
        wait_until(self._whole, timeout=60, what="a Redis Cluster in order")

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def owner(self, key: str) -> ClusterNode:
        """The primary that has the key's slot."""
        slot = self._ask(self.nodes[0], "CLUSTER", "KEYSLOT", key)
        for first, last, primary, *_ in self._ask(self._alive(), "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == primary[1])
        raise LookupError(f"nobody has the slot of {key}")

    def move_slot(self, key: str) -> None:
        """The slot of this key, with everything in it, goes to another primary while clients use it."""
        source = self.owner(key)
        slot = self._ask(source, "CLUSTER", "KEYSLOT", key)
        primaries = {primary[1] for _, _, primary, *_ in self._ask(source, "CLUSTER", "SLOTS")}
        target = next(node for node in self.nodes if node.port in primaries and node is not source)
        ids = {node: self._ask(node, "CLUSTER", "MYID").decode() for node in (source, target)}
        self._ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        self._ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        while keys := self._ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            self._ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source):
            self._ask(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[target])

    def _alive(self) -> ClusterNode:
        return next(node for node in self.nodes if node.running)

    def _ask(self, node: ClusterNode, *words: Any) -> Any:
        with redis.Redis(port=node.port, socket_timeout=10) as client:
            return client.execute_command(*words)

    def _whole(self) -> bool:
        with suppress(RedisError):
            infos = [self._ask(node, "CLUSTER", "INFO") for node in self.nodes]
            return all(b"cluster_state:ok" in info for info in infos) and self._linked() == 3
        return False

    def _linked(self) -> int:
        """How many replicas follow their primaries."""
        count = 0
        for node in self.nodes:
            with redis.Redis(port=node.port, socket_timeout=5) as client:
                info: dict[str, Any] = client.info("replication")
                count += info.get("master_link_status") == "up"
        return count

    def _cli(self, *words: str | Sequence[str]) -> None:
        done = subprocess.run(["redis-cli", *map(str, words)], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"redis-cli {words[1]}: {done.stdout}{done.stderr}")
