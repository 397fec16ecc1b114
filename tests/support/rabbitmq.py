"""A private RabbitMQ on free loopback ports."""

import re
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.support.daemon import Daemon, send
from tests.support.ports import free_port
from tests.support.waiting import wait_until

# The one on PATH changes the user and refuses everybody but root.
SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_CONF = """listeners.tcp.1 = 127.0.0.1:{port}
loopback_users = none
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
"""


class RabbitMQ(Daemon):
    """One node with the user guest."""

    def __init__(self) -> None:
        super().__init__("rabbit")
        self.port, self._dist, self._epmd = free_port(), free_port(), free_port()
        # A door of Service Bus is tried against the AMQP 1.0 of another broker.
        (self.folder / "plugins").write_text("[rabbitmq_amqp1_0].")
        (self.folder / "rabbitmq.conf").write_text(_CONF.format(port=self.port))

    def start(self) -> None:
        for _ in range(3):
            try:
                super().start()
            except RuntimeError as error:
                # While it was down somebody's connection may have got the port that its nodes would meet on.
                if "dist_port_already_used" not in str(error) + self.log.read_text(errors="replace")[-4000:]:
                    raise
                self._dist = free_port()
            else:
                return
        raise RuntimeError("RabbitMQ found no port for its nodes")

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def command(self) -> list[str]:
        return [*self._environment(), str(SCRIPT)]

    def unacknowledged(self, queue: str) -> int:
        """How many messages of a queue consumers hold, as the broker itself counts; 0 if there is no such queue."""
        name = f'rabbit_misc:r(<<"/">>, queue, <<"{queue}">>)'
        look = "[{messages_unacknowledged, Held}] = rabbit_amqqueue:info(Queue, [messages_unacknowledged]), Held"
        answer = self._evaluate(f"case rabbit_amqqueue:lookup({name}) of {{ok, Queue}} -> {look}; _ -> 0 end.")
        return int(answer)

    def close_all_connections(self, why: str) -> None:
        """What an operator does with rabbitmqctl close_all_connections."""
        close = f'[rabbit_networking:close_connection(Each, "{why}") || Each <- rabbit_networking:connections()]'
        self._evaluate(f"{close}, ok.")

    def leave(self) -> None:
        """Stop the broker and leave its runtime running, as rabbitmqctl stop_app does: nobody can connect any more."""
        self._evaluate("ok = rabbit:stop().")

    def come_back(self) -> None:
        """Start the broker that has left, which costs a fifth of a start of the whole process."""
        self._evaluate("ok = rabbit:start().")
        wait_until(self.is_up, timeout=90, what="RabbitMQ answering")

    def _evaluate(self, code: str) -> str:
        """Run Erlang inside the broker, which costs milliseconds; rabbitmqctl takes a second of processor time."""
        cookie = (self.folder / ".erlang.cookie").read_text()
        node = ["-sname", f"t{self.port}@localhost", "-c", cookie, "-R", "-timeout", "60"]
        done = subprocess.run(
            [*self._environment(), "erl_call", *node, "-e"],
            input=f"{code}\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        found = re.fullmatch(r"\{ok, (.*)\}", done.stdout.strip(), re.DOTALL)
        if done.returncode != 0 or found is None:
            raise RuntimeError(f"{code}: {done.stdout}{done.stderr}")
        return found[1]

    def _environment(self) -> list[str]:
        folder = self.folder
        settings = {
            "HOME": folder,
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_NODE_PORT": self.port,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": self._dist,
            "RABBITMQ_MNESIA_BASE": folder / "mnesia",
            "RABBITMQ_LOG_BASE": folder / "log.d",
            "RABBITMQ_PID_FILE": folder / "pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": folder / "plugins",
            "RABBITMQ_CONFIG_FILE": folder / "rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": folder / "none",
            "ERL_EPMD_PORT": self._epmd,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1",
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items())]

    def is_up(self) -> bool:
        # A listener that still resets its callers is not up: a broker answers the protocol's header.
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(1) == b"\x01"
        return False

    def close(self) -> None:
        # The port mapper leaves its family at once and would stay behind.
        mapper = [
            int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._is_mapper(entry)
        ]
        super().close()
        for pid in mapper:
            send(pid, signal.SIGTERM)

    def _is_mapper(self, process: Path) -> bool:
        with suppress(OSError):
            environment = (process / "environ").read_bytes().split(b"\0")
            name = (process / "comm").read_text().strip()
            return name == "epmd" and f"ERL_EPMD_PORT={self._epmd}".encode() in environment
        return False
