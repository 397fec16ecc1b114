"""The Carillon processes of a fleet: a crew of equal ones for each blueprint and engine, restarted as by systemd."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Self

from tests.fleet.topology import PASSWORD, Servers
from tests.support import wrong_clock
from tests.support.fcm_stub import SERVER_KEY, FcmStub
from tests.support.galaxy_stand import Users
from tests.support.ports import free_port
from tests.support.process import Program, carillon_command
from tests.support.push_messages import TemplateStub
from tests.support.sendgrid_stub import API_KEY, SendGridStub
from tests.support.vendor import Vendor

FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LEASE, CALL = 12.0, 8.0
"""Seconds: how long a claim is held, and how long one call may take."""
AGAIN_SECONDS = 1.0
MOST_LINES = 100_000
_WORK = f"""[ledger]
lease_seconds = {LEASE}
[work]
concurrency = 32
poll_seconds = 0.2
drain_seconds = 5
"""
_POLICY = f"""max_attempts = 1000
base_delay_seconds = 0.5
backoff_factor = 1.0
max_delay_seconds = 2
jitter = "none"
jitter_seconds = 0.0
timeout_seconds = {CALL}
"""
_LANES = "".join(
    f"[lanes.{lane}]\ntimeout_seconds = {CALL}\nmax_attempts = 1000\n" for lane in ("priority", "standard", "bulk")
)
_UNKNOWN = re.compile(r"unknown field `(\w+)`")
_BREAKER = '[policy.breaker."*"]\nfailure_threshold = 20\nopen_seconds = 2\n'


class Vendors:
    """Whom the fleet sends to, each with a ledger of its own; a fault changes how all of them answer."""

    def __init__(self, folder: Path) -> None:
        self.hooks = Vendor(folder / "hooks.jsonl")
        self.mail = SendGridStub(folder / "mail.jsonl")
        self.fcm = FcmStub(folder / "fcm.jsonl")
        self.templates = TemplateStub(folder / "templates.jsonl")
        self.users = Users(folder / "users.jsonl")
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for each in (self.hooks, self.mail, self.fcm, self.templates, self.users):
            # The checker reads the ledgers; a hundred thousand entries in memory would only slow this process.
            each.most_entries = 1000
            self._stack.enter_context(each)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def senders(self) -> list[Vendor]:
        return [self.hooks, self.mail, self.fcm]


class Crew:
    """Equal processes of one blueprint on one engine."""

    blueprint: ClassVar[str]
    engine: ClassVar[str] = "postgresql"
    listens: ClassVar[bool] = True
    schema: ClassVar[str] = ""
    clocks: ClassVar[tuple[int, ...]] = (1, -1)
    """By how many hours the clocks of its first processes may be wrong."""
    fakes_libraries: ClassVar[bool] = True
    """Whether the libraries of a process with a wrong clock believe the wrong time as well."""

    def __init__(self, folder: Path, servers: Servers, vendors: Vendors, size: int) -> None:
        self.folder = folder / self.name
        self.folder.mkdir()
        self.servers, self.vendors, self.size = servers, vendors, size
        self.database = f"fleet_{self.name.replace('-', '_')}"
        self.url = self._store()
        self.ports = [free_port() for _ in range(size)]
        self.programs: list[Program | None] = [None] * size
        self.extra: list[dict[str, str]] = [{} for _ in range(size)]
        """What a fault adds to the environment of single processes."""
        self.absent: set[int] = set()
        """Processes that a fault keeps from being started again."""
        self.older: list[Path | None] = [None] * size
        """The source tree of another release that a process runs."""
        self.restarts = 0
        self.forked = True
        """Whether its processes are forked from one that has imported everything."""
        self.config = self.folder / "carillon.toml"
        self.config.write_text(f'extends = "{self.blueprint}"\n{self.settings()}')

    @property
    def name(self) -> str:
        return self.blueprint if self.engine == "postgresql" else f"{self.blueprint}-{self.engine}"

    def _store(self) -> str:
        return self.servers.create(self.database)

    def settings(self) -> str:
        return ""

    def environment(self, number: int) -> dict[str, str]:
        return {"DATABASE_URL": self.servers.dsn(self.database, number)}

    def wrong_clock(self, hours: int) -> dict[str, str]:
        """What makes a process believe another time of day."""
        faked = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{hours:+}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        if self.fakes_libraries:
            return faked
        return {wrong_clock.SHIFT: str(hours * 3600), "PYTHONPATH": str(Path(__file__).parents[2])}

    def start(self, number: int) -> None:
        """Start one process without waiting for it."""
        env = {
            "CARILLON_HTTP__PORT": str(self.ports[number]),
            **self.environment(number),
            **self.extra[number],
        }
        tree = self.older[number]
        command = None if self.forked else carillon_command()
        if wrong_clock.SHIFT in env:
            command = [sys.executable, "-m", wrong_clock.__name__]
        if tree is not None:
            env["PYTHONPATH"] = str(tree / "src")
            # As an operator says who goes back: the newer release has migrated the ledger already.
            env["CARILLON_LEDGER__ALLOW_MIGRATION"] = "9999"
            command = [sys.executable, "-m", "carillon.cli"]
        config = self.config if tree is None else self._known_to_older(env)
        given = ("serve", "--config", str(config))
        self.programs[number] = Program(*given, env=env, cwd=self.folder, command=command, most_lines=MOST_LINES)

    def _known_to_older(self, env: dict[str, str]) -> Path:
        """The settings without those that the older release does not know, as it needs them from an operator."""
        config = self.folder / "older.toml"
        if config.exists():
            return config
        lines = self.config.read_text().splitlines()
        while True:
            config.write_text("\n".join(lines))
            asked = [sys.executable, "-m", "carillon.cli", "config", "show", "--config", str(config)]
            said = subprocess.run(
                asked, env={**os.environ, **env}, cwd=self.folder, capture_output=True, text=True, check=False
            )
            unknown = _UNKNOWN.search(said.stderr)
            kept = [line for line in lines if unknown and not line.startswith(f"{unknown[1]} =")]
            if not unknown or len(kept) == len(lines):
                return config
            lines = kept

    def alive(self) -> list[tuple[int, Program]]:
        found = ((number, program) for number, program in enumerate(self.programs) if program is not None)
        return [(number, program) for number, program in found if program.returncode is None]

    def wait_ready(self, seconds: float = 120) -> None:
        for program in self.programs:
            if program is not None:
                program.wait_ready(seconds)

    def close(self) -> None:
        for program in self.programs:
            if program is not None:
                program.close()


class Local(Crew):
    """Over HTTP, to webhooks."""

    blueprint = "local"

    def settings(self) -> str:
        return (
            f"{_WORK}{_LANES}{_BREAKER}"
            f'[policy.retry."*/*"]\n{_POLICY}[policy.retry."*/webhook"]\n{_POLICY}'
            f'[providers.webhook]\nsecrets = ["{SECRET}"]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\n'
            'allow_ports = ["1024-65535"]\nconcurrency_per_endpoint = 1000\n'
        )


class LocalSqlite(Local):
    """The same on one file, which all processes share."""

    engine = "sqlite"
    # All processes of one file are on one machine and so have one clock.
    clocks = ()

    def _store(self) -> str:
        disk = self.folder.parent / "disk"
        return f"sqlite:///{(disk if disk.exists() else self.folder) / 'ledger.db'}"

    def environment(self, number: int) -> dict[str, str]:
        del number
        return {"DATABASE_URL": self.url}


class Listo(Crew):
    """Over HTTP, to SendGrid."""

    blueprint = "listo"

    def settings(self) -> str:
        return (
            f'{_WORK}{_LANES}{_BREAKER}[channels]\nemail = ["SendGrid"]\n'
            + "".join(
                f'[policy.retry."{name}"]\n{_POLICY}open_after_retries = false\non_open = "defer"\n'
                for name in ("*/email", "auth/sms", "orders/push", "*/*")
            )
            + "[policy.breaker.sendgrid]\nfailure_threshold = 20\nopen_seconds = 2\n"
            '[providers.SendGrid]\nsender = "fleet@example.org"\n'
        )

    def environment(self, number: int) -> dict[str, str]:
        return {
            **super().environment(number),
            "SENDGRID_BASE_URL": self.vendors.mail.url,
            "SENDGRID_API_KEY": API_KEY,
            "CARILLON_ALLOW_SANDBOX": "1",
        }


class Galaxy(Crew):
    """From a Redis Stream, into two others."""

    blueprint = "galaxy"
    listens = False
    schema = "notification"

    def environment(self, number: int) -> dict[str, str]:
        return {
            "NOTIFICATION_REDIS_MASTER_ADDR": f"127.0.0.1:{self.servers.ways.port('redis', number)}",
            "NOTIFICATION_REDIS_PASSWORD": PASSWORD,
            "NOTIFICATION_REDIS_DB": "1",
            "NOTIFICATION_POSTGRES_PRIMARY_DSN": f"{self.servers.dsn(self.database, number)}?search_path=notification",
            "NOTIFICATION_USER_SERVICE_BASE_URL": self.vendors.users.url,
            "NOTIFICATION_INTERNAL_HTTP_ADDR": f"127.0.0.1:{self.ports[number]}",
            "NOTIFICATION_GATEWAY_CLIENT_EVENTS_STREAM_MAX_LEN": "10000000",
            "NOTIFICATION_PUSH_RETRY_MAX_ATTEMPTS": "1000",
            "NOTIFICATION_EMAIL_RETRY_MAX_ATTEMPTS": "1000",
            "NOTIFICATION_ROUTE_BACKOFF_MAX": "2s",
            "NOTIFICATION_ROUTE_LEASE_TTL": f"{LEASE:.0f}s",
        }


class PushWorker(Crew):
    """From a quorum queue, to FCM."""

    blueprint = "push-worker"
    listens = False

    def settings(self) -> str:
        never = "failure_threshold = 1000000\nopen_seconds = 1\n"
        retry = _POLICY.replace("max_attempts = 1000", "max_retries = 1000")
        return (
            f"[ledger]\nlease_seconds = {LEASE}\n[work]\ndrain_seconds = 5\n"
            f'[push]\ntakeover_after = "{LEASE:.0f}s"\ntemplate_cache_seconds = 60\n'
            f'[policy.retry.fcm]\n{retry}[policy.retry."*/*"]\n{retry}'
            + "".join(f"[policy.breaker.{name}]\n{never}" for name in ("fcm", "template_service", '"*"'))
        )

    def environment(self, number: int) -> dict[str, str]:
        return {
            **super().environment(number),
            "RABBITMQ_URL": self.servers.rabbit_url(number),
            "REDIS_URL": self.servers.redis_url(2, number),
            "TEMPLATE_SERVICE_URL": self.vendors.templates.url,
            "FCM_API": "legacy",
            "FCM_BASE_URL": self.vendors.fcm.url,
            "FCM_SERVER_KEY": SERVER_KEY,
        }


class Billing(Crew):
    """Over HTTP and through lists in Redis, to its own other half."""

    blueprint = "billing"

    def settings(self) -> str:
        patient = "base_delay_seconds = 0.5\nmax_delay_seconds = 1\njitter_seconds = 0\nmax_retries = 1000\n"
        queues = ("*", "q:sub:trial_payment", "q:pay:refund_initiation")
        return "[beat]\npump_seconds = 0.2\nsweep_seconds = 1\ngrace_seconds = 2\n" + "".join(
            f'[queue."{queue}"]\n{patient}lock_ttl_seconds = {LEASE}\n' for queue in queues
        )

    def environment(self, number: int) -> dict[str, str]:
        return {
            **super().environment(number),
            "REDIS_URL": self.servers.redis_url(3, number),
            "WEBHOOK_SIGNING_SECRET": SECRET,
            "SERVICE_TOKEN": "fleet-service-token",
        }


class Sse(Crew):
    """From Kafka, into people's streams."""

    blueprint = "sse"
    # librdkafka asks the kernel to wake it at a time of day, and the kernel believes the true time.
    fakes_libraries = False

    def __init__(self, folder: Path, servers: Servers, vendors: Vendors, size: int) -> None:
        self.topic = servers.kafka.topic(3)
        super().__init__(folder, servers, vendors, size)

    def settings(self) -> str:
        return (
            # As patient as the others: with the usual three attempts a reader who is slow thrice is given up.
            '[task_picker]\npoll_interval = "200ms"\nlease_duration = "12s"\nmax_retries = 1000\n'
            "[kafka]\nsession_timeout_ms = 6000\n[sse]\npresence_seconds = 5\n"
        )

    def environment(self, number: int) -> dict[str, str]:
        return {
            **super().environment(number),
            "KAFKA_BOOTSTRAP_SERVERS": self.servers.kafka.bootstrap,
            "KAFKA_TOPIC": self.topic.name,
            "KAFKA_GROUP_ID": "fleet",
        }

    def close(self) -> None:
        super().close()
        self.topic.__exit__()


EVERY: Mapping[str, type[Crew]] = {
    "local": Local,
    "local-sqlite": LocalSqlite,
    "listo": Listo,
    "galaxy": Galaxy,
    "push-worker": PushWorker,
    "billing": Billing,
    "sse": Sse,
}


class Supervisor:
    """Starts every process that has ended again, a second later; a fault that kills has nothing to heal."""

    def __init__(self, crews: list[Crew]) -> None:
        self.crews = crews
        self.troubles: list[str] = []
        self._over = threading.Event()
        self._ended: dict[tuple[str, int], float] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def thread_id(self) -> int | None:
        return self._thread.native_id

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._over.wait(0.2):
            for crew in self.crews:
                for number in range(crew.size):
                    try:
                        self._look(crew, number)
                    except Exception as error:  # noqa: BLE001 - without a supervisor nobody would come back
                        self.troubles.append(f"{crew.name} {number} not started: {type(error).__name__}: {error}")

    def _look(self, crew: Crew, number: int) -> None:
        program = crew.programs[number]
        if program is None or program.returncode is None or number in crew.absent:
            return
        since = self._ended.setdefault((crew.name, number), time.monotonic())
        if time.monotonic() - since >= AGAIN_SECONDS:
            del self._ended[crew.name, number]
            program.close()
            crew.restarts += 1
            crew.start(number)
