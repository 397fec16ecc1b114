"""One ledger, one vendor, one producer and any number of real processes, all private and all gone afterwards."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support import tables
from tests.support.checker import Report, check
from tests.support.ports import free_port
from tests.support.process import Program, add_last_words
from tests.support.producer import Line, Producer, messages
from tests.support.vendor import Vendor
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ALL = "doors,outbound,upkeep"


@dataclass(frozen=True)
class Rules:
    """The settings that fault tests play with; a breaker never opens unless a test wants it to."""

    lease: float = 4.0
    timeout: float = 3.2
    attempts: int = 6
    delay: float = 0.2
    concurrency: int = 16
    batch: int = 500
    drain: float = 5.0
    failures: int = 1_000_000
    open_seconds: float = 1.0
    on_unknown: str = "retry"
    sandbox: dict[str, float] = field(default_factory=dict)

    def toml(self, ledger: Path) -> str:
        policy = [
            f"max_attempts = {self.attempts}\nbase_delay_seconds = {self.delay}\nbackoff_factor = 1.0",
            f'jitter = "none"\njitter_seconds = 0.0\ntimeout_seconds = {self.timeout}',
            f'on_unknown = "{self.on_unknown}"',
        ]
        lane = f"timeout_seconds = {self.timeout}\nmax_attempts = {self.attempts}"
        sandbox = "\n".join(f"{name} = {value}" for name, value in self.sandbox.items())
        return "\n".join(
            [
                'extends = "local"',
                f"[ledger]\nlease_seconds = {self.lease}",
                f"[work]\nconcurrency = {self.concurrency}\nbatch = {self.batch}\npoll_seconds = 0.1",
                f"drain_seconds = {self.drain}",
                f'[providers.webhook]\nsecrets = ["{SECRET}"]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]',
                'allow_ports = ["1024-65535"]\nconcurrency_per_endpoint = 1000',
                f'[providers.sandbox]\nledger_path = "{ledger}"\n{sandbox}',
                *(f'[policy.retry."{name}"]\n' + "\n".join(policy) for name in ("*/*", "*/webhook")),
                *(f"[lanes.{name}]\n{lane}" for name in ("priority", "standard", "bulk")),
                f'[policy.breaker."*"]\nfailure_threshold = {self.failures}\nopen_seconds = {self.open_seconds}',
            ]
        )


class Stand:
    """What a fault test stands on; `held` counts, per message, the faults that met it in a worker's hands."""

    def __init__(self, folder: Path, url: str, rules: Rules | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.url = url
        self.rules = rules or Rules()
        self.ledger = folder / "vendor.jsonl"
        self.vendor = Vendor(self.ledger)
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.producer = Producer(folder / "journal.jsonl", lambda: self.address)
        self.held: Counter[str] = Counter()
        self._programs: list[Program] = []
        self._config = folder / "carillon.toml"
        self._config.write_text(self.rules.toml(self.ledger))

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.vendor.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        add_last_words(error, self._programs)
        for program in self._programs:
            await asyncio.to_thread(program.close)
        await asyncio.to_thread(self.vendor.__exit__, kind, error, trace)
        self.producer.close()

    def launch(
        self,
        roles: str = ALL,
        *,
        faults: str = "",
        mutant: str | None = None,
        env: Mapping[str, str] | None = None,
        settings: str = "",
    ) -> Program:
        """Start a process without waiting for it; a process with doors gets the stand's own port."""
        config = self._config
        if settings:
            config = self.folder / f"carillon-{len(self._programs)}.toml"
            config.write_text(f"{self._config.read_text()}\n{settings}")
        port = str(self.port) if "doors" in roles else "0"
        given = {"CARILLON_LEDGER__URL": self.url, "CARILLON_HTTP__PORT": port, "PYTHONPATH": str(ROOT)}
        given |= {"CARILLON_FAULTPOINTS": faults} if faults else {}
        command = [sys.executable, "-m", "tests.support.mutant", mutant] if mutant else None
        program = Program(
            *("serve", "--config", str(config), "--roles", roles),
            env={**given, **(env or {})},
            cwd=self.folder,
            command=command,
        )
        self._programs.append(program)
        return program

    async def start(self, roles: str = ALL, **options: Any) -> Program:
        program = self.launch(roles, **options)
        await program.until("ready", timeout=60)
        return program

    def webhooks(self, names: Iterable[str], path: str = "hook") -> dict[str, dict[str, Any]]:
        return messages("webhook", names, lambda name: f"{self.vendor.url}/{path}/{name}")

    def pushes(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        return messages("push", names, lambda name: f"device-{name}")

    async def send(self, bodies: Mapping[str, Mapping[str, Any]], **options: Any) -> list[Line]:
        return await self.producer.send(bodies, **options)

    async def note_held(self, pid: int | None = None) -> int:
        """After a fault: remember what the process (or all of them) held; returns how much that was."""
        rows = await tables.read(self.url, tables.HELD)
        mine = [row for row in rows if pid is None or str(row["lease_owner"]).endswith(f"/{pid}")]
        self.held.update(f"{row['notification_id']}/{row['route_id']}" for row in mine)
        return len(mine)

    async def end_leases(self) -> None:
        """By the ledger's clock nobody holds anything any more: sooner than the leases themselves would have it."""
        await tables.write(self.url, "UPDATE routes SET next_attempt_at = created_at WHERE claim_token IS NOT NULL")
        await tables.write(self.url, "UPDATE leases SET expires_at = claimed_at")

    async def until_terminal(self, number: int, within: float = 60.0) -> float:
        """Wait until so many routes exist and none is open; returns how long that took."""
        began = time.monotonic()

        async def done() -> bool:
            counts = {row["status"]: row["n"] for row in await tables.read(self.url, tables.STATUSES)}
            return sum(counts.values()) >= number and not counts.keys() & {"pending", "failed"}

        await until(done, timeout=within, what=f"{number} routes terminal")
        return time.monotonic() - began

    async def until_rows(
        self, statement: str, wanted: Callable[[list[tables.Row]], bool], within: float = 40.0
    ) -> None:
        async def done() -> bool:
            return wanted(await tables.read(self.url, statement))

        await until(done, timeout=within, what=statement)

    async def report(self) -> Report:
        return await check(self.producer.journal, self.ledger, self.url, route_send_id=lambda route: route.name)
