"""RabbitMQ as a cluster of three nodes, on which queues are quorum queues."""

import base64
import json
import signal
import urllib.request
from contextlib import suppress
from typing import Any

from tests.support.daemon import Daemon, children_of, is_alive, send
from tests.support.ports import free_port
from tests.support.rabbitmq import SCRIPT
from tests.support.waiting import wait_until

# `net_ticktime` is long: on a busy machine a node that is slow to answer would be given up, and a minority pauses.
# Quorum queues have a detector of their own, which finds a leader that hangs within seconds.
_CONF = """listeners.tcp.1 = 127.0.0.1:{port}
management.tcp.ip = 127.0.0.1
management.tcp.port = {web}
loopback_users = none
cluster_formation.peer_discovery_backend = classic_config
{peers}
cluster_partition_handling = pause_minority
net_ticktime = 30
disk_free_limit.absolute = 10MB
vm_memory_high_watermark.absolute = 1GB
"""
_NAMES = ("a", "b", "c")
_NODES = "nodes?columns=name,running"
START, PATIENCE = 300.0, 120.0
"""Seconds in which the cluster forms, and in which a node that was away joins again."""


class Mapper(Daemon):
    """The port mapper of the nodes; started first, because one that a node starts would outlive it."""

    def __init__(self) -> None:
        super().__init__("epmd")
        self.port = free_port()

    def command(self) -> list[str]:
        return ["epmd", "-port", str(self.port), "-address", "127.0.0.1"]

    def is_up(self) -> bool:
        return True


class RabbitNode(Daemon):
    """One node; its start script is the parent of the broker itself."""

    def __init__(self, name: str, mapper: int) -> None:
        super().__init__(f"rabbit-{name}")
        self.name, self.port, self.web = name, free_port(), free_port()
        self._dist, self._mapper = free_port(), mapper
        cookie = self.folder / ".erlang.cookie"
        cookie.write_text("carillonfleet")
        cookie.chmod(0o400)
        peers = "\n".join(
            f"cluster_formation.classic_config.nodes.{number} = {each}{mapper}@localhost"
            for number, each in enumerate(_NAMES, 1)
        )
        (self.folder / "rabbitmq.conf").write_text(_CONF.format(port=self.port, web=self.web, peers=peers))
        (self.folder / "plugins").write_text("[rabbitmq_management].")

    def command(self) -> list[str]:
        folder = self.folder
        settings = {
            "HOME": folder,
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": f"{self.name}{self._mapper}@localhost",
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": self._dist,
            "RABBITMQ_MNESIA_BASE": folder / "mnesia",
            "RABBITMQ_LOG_BASE": folder / "log.d",
            "RABBITMQ_PID_FILE": folder / "pid",
            "RABBITMQ_GENERATED_CONFIG_DIR": folder / "generated",
            "RABBITMQ_ADVANCED_CONFIG_FILE": folder / "none.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
            "RABBITMQ_CONFIG_FILE": folder / "rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "ERL_EPMD_PORT": self._mapper,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none",
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items()), str(SCRIPT)]

    def is_up(self) -> bool:
        """The whole cluster starts at once, and each node waits for the others: being asked comes later."""
        return True

    def kill(self) -> None:
        family = self._family()
        super().kill()
        for pid in family:
            send(pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, family)), timeout=30, what=f"RabbitMQ's node {self.name} gone")

    def pause(self) -> None:
        for pid in self._family():
            send(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._family():
            send(pid, signal.SIGCONT)

    def see(self, path: str) -> Any:
        """What its HTTP API says; None if it says nothing."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.web}/api/{path}")
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        with suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=15) as answer:  # noqa: S310 - as above
            return json.load(answer)
        return None

    def _family(self) -> list[int]:
        if not self.running:
            return []
        found, fresh = [self.pid], [self.pid]
        while fresh:
            fresh = [child for parent in fresh for child in children_of(parent)]
            found += fresh
        return found


class RabbitFleet:
    """Three nodes; a minority pauses itself, and the majority goes on."""

    def __init__(self) -> None:
        self._mapper = Mapper()
        self.nodes = [RabbitNode(name, self._mapper.port) for name in _NAMES]

    @property
    def ports(self) -> list[int]:
        return [node.port for node in self.nodes]

    def start(self) -> None:
        self._mapper.start()
        for node in self.nodes:
            node.start()
        self.until_whole(START)

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self._mapper.close()

    def leader_of(self, queue: str) -> RabbitNode:
        """The node that leads a quorum queue, or the first one that runs."""
        running = [node for node in self.nodes if node.running]
        for node in running:
            found = node.see(f"queues/%2F/{queue}")
            if found and "leader" in found:
                return next(each for each in running if found["leader"].startswith(each.name))
        return running[0]

    def kill(self, *nodes: RabbitNode) -> None:
        for node in nodes:
            node.kill()

    def heal(self) -> None:
        """Who is down is started again; who does not join within a while is restarted, as an operator would."""
        self._start_missing()
        try:
            self.until_whole(PATIENCE)
        except TimeoutError:
            outside = self._outside()
            for node in outside:
                node.kill()
            self._start_missing()
            try:
                self.until_whole(PATIENCE)
            except TimeoutError as error:
                names = ", ".join(node.name for node in outside) or "none"
                raise TimeoutError(f"{error}; restarted: {names}; {self._said()}") from None

    def until_whole(self, seconds: float) -> None:
        """Every node sees three running ones; one that ends while it starts is started again, as by systemd."""

        def whole() -> bool:
            self._start_missing()
            seen = [node.see(_NODES) for node in self.nodes]
            return all(found and sum(bool(each.get("running")) for each in found) == 3 for found in seen)

        wait_until(whole, timeout=seconds, what="three running nodes of RabbitMQ")

    def _start_missing(self) -> None:
        for node in self.nodes:
            if not node.running:
                node.start()

    def _outside(self) -> list[RabbitNode]:
        """The nodes that the largest group of nodes which see one another does not see."""
        views = [found for node in self.nodes if (found := node.see(_NODES))]
        running = [{str(each["name"])[0] for each in view if each.get("running")} for view in views]
        together = max(running, key=len, default=set())
        # If nobody answers, they are slow: to restart all of them would only begin again.
        return [node for node in self.nodes if node.name not in together] if together else []

    def _said(self) -> str:
        """The last line of each node's log."""
        last = {node.name: node.log.read_text(errors="replace").splitlines()[-1:] for node in self.nodes}
        return "; ".join(f"{name}: {' '.join(lines)}" for name, lines in last.items())
