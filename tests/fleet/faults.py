"""The faults of a fleet: each strikes, stays for a while and is healed; what heals by itself is left to heal."""

import resource
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.fleet import server_faults
from tests.fleet.crews import CALL, FAKETIME, LEASE, Crew
from tests.fleet.topology import PlainServers, Relay, Ways
from tests.fleet.world import World, set_limit
from tests.support.process import Program
from tests.support.proxy import FaultProxy
from tests.support.vendor import Answer, Entry, Reply

ROOT = Path(__file__).parents[2]
Topology = Literal["plain", "whole", "both"]


@dataclass(frozen=True)
class Fault:
    """A fault by its name on the page."""

    name: str
    run: Callable[[World], None]
    on: Topology = "both"
    long: bool = False
    """Left out of the two-minute form."""


# --- processes -------------------------------------------------------------------------------------------------------


def kill_processes(world: World) -> None:
    with world.striking():
        for _, _, program in world.victims():
            program.kill()
    world.until_ready()


def stop_processes(world: World) -> None:
    """Longer than their leases: when they go on, others hold what they held."""
    victims = world.victims()
    with world.striking():
        try:
            for _, _, program in victims:
                program.stop()
            time.sleep(LEASE * 1.25)
        finally:
            for _, _, program in victims:
                program.cont()
        time.sleep(2)
    world.until_ready()


def use_up(limit: int, room: Callable[[Program], int]) -> Callable[[World], None]:
    """A limit of the system that a running process reaches, for six seconds."""

    def run(world: World) -> None:
        victims = [program for _, _, program in world.victims()]
        before = {program: resource.prlimit(program.pid, limit)[0] for program in victims}
        with world.striking():
            try:
                for program in victims:
                    # Who ends in the middle of it has no files and no memory to look at.
                    with suppress(OSError):
                        set_limit(program, limit, room(program))
                time.sleep(6)
            finally:
                for program in victims:
                    if program.returncode is None:
                        set_limit(program, limit, before[program])
        world.until_ready()

    return run


def _open_files(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/fd").iterdir())) + 1


def _address_space(program: Program) -> int:
    pages = int(Path(f"/proc/{program.pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize() + (4 << 20)


def wrong_clocks(world: World) -> None:
    """One process of each crew is an hour ahead, another an hour behind, where that can be."""
    crews = [crew for crew in world.crews if crew.clocks]
    struck = time.time()
    for crew in crews:
        for number, hours in enumerate(crew.clocks[: crew.size]):
            crew.extra[number] = crew.wrong_clock(hours)
    _restart_numbers(world, crews, 0, 1)
    time.sleep(10)
    # Where this is not reached, `World.heal` finds by these who runs with a wrong clock.
    for crew in crews:
        crew.extra = [{} for _ in range(crew.size)]
    _restart_numbers(world, crews, 0, 1)
    world.struck = struck


def _restart_numbers(world: World, crews: list[Crew], *numbers: int) -> None:
    """A deployment: one process of each crew after another ends in its own time."""
    for number in numbers:
        with world.striking():
            programs = [program for crew in crews if (program := crew.programs[number]) is not None]
            for program in programs:
                if program.returncode is None:
                    program.terminate()
            for program in programs:
                program.wait(60)
        world.until_ready()


def roll(world: World) -> None:
    """From this release to the other one and back, process by process."""
    struck = time.time()
    for tree in (world.older, None):
        for number in range(world.crews[0].size):
            for crew in world.crews:
                crew.older[number] = tree
            _restart_numbers(world, world.crews, number)
    world.struck = struck


# --- ways ------------------------------------------------------------------------------------------------------------


def cut(world: World) -> None:
    with world.striking():
        for relay in world.servers.ways.all():
            relay.do(lambda proxy: proxy.reset())


def way(
    seconds: float, wrong: Callable[[FaultProxy], object], relays: Callable[[Ways], list[Relay]] = Ways.all
) -> Callable[[World], None]:
    """Something is wrong with the ways for a while; torn connections are made anew in the two seconds after it."""

    def run(world: World) -> None:
        chosen = relays(world.servers.ways)
        with world.striking():
            try:
                for relay in chosen:
                    relay.do(wrong)
                time.sleep(seconds)
            finally:
                for relay in chosen:
                    relay.heal()
            time.sleep(2)
        world.until_ready()

    return run


def _slow(proxy: FaultProxy) -> None:
    """A tenth of a second each way."""
    proxy.latency = 0.1


# --- vendors ---------------------------------------------------------------------------------------------------------


def vendor(seconds: float, wrong: Callable[[Reply], Reply]) -> Callable[[World], None]:
    """Every vendor answers wrongly for a while; what was sent meanwhile has an outcome that nobody knows."""

    def run(world: World) -> None:
        with world.striking():
            try:
                for each, answer in world.usual.items():
                    each.default = _instead(answer, wrong)
                time.sleep(seconds)
            finally:
                for each, answer in world.usual.items():
                    each.default = answer
            # The last wrong answer is as old as a call can get.
            time.sleep(CALL + 1)

    return run


def _instead(answer: Answer, wrong: Callable[[Reply], Reply]) -> Callable[[Entry], Reply]:
    return lambda entry: wrong(answer(entry) if callable(answer) else answer)


# --- disks -----------------------------------------------------------------------------------------------------------


def fill_disk(world: World) -> None:
    with world.striking():
        try:
            world.disk.fill()
            time.sleep(6)
        finally:
            world.disk.empty()
    world.until_ready()


def freeze_disk(world: World) -> None:
    """Every write waits two seconds, four times."""
    with world.striking():
        for _ in range(4):
            try:
                world.disk.freeze()
                time.sleep(2)
            finally:
                world.disk.thaw()
            time.sleep(0.2)
    world.until_ready()


FAULTS: tuple[Fault, ...] = (
    Fault("process killed (SIGKILL)", kill_processes),
    Fault("process stopped (SIGSTOP) past its lease", stop_processes),
    Fault("PostgreSQL killed and started", server_faults.kill_server("postgres"), "plain"),
    Fault("Redis killed and started", server_faults.kill_server("redis"), "plain"),
    Fault("RabbitMQ killed and started", server_faults.kill_server("rabbit"), "plain", long=True),
    Fault("PostgreSQL switched over", server_faults.switch_postgres, "whole"),
    Fault("PostgreSQL primary killed", server_faults.kill_postgres, "whole"),
    Fault("PostgreSQL standby killed", server_faults.kill_standby, "whole"),
    Fault("etcd stopped", server_faults.stop_etcd, "whole"),
    Fault("Redis primary killed (Sentinel)", server_faults.kill_redis, "whole"),
    Fault("Redis primary hangs (Sentinel)", server_faults.stop_redis, "whole"),
    Fault("Kafka broker down", server_faults.broker_down),
    Fault("connections cut", cut),
    Fault("servers refuse for 5 s", way(5, FaultProxy.refuse)),
    Fault("0.1 s of delay each way", way(8, _slow), long=True),
    Fault("partition of one process", way(LEASE * 1.25, FaultProxy.blackhole, Ways.of_first), long=True),
    Fault("partition in one direction", way(LEASE * 1.25, FaultProxy.deafen, Ways.of_first), long=True),
    Fault("disk of SQLite full", fill_disk),
    Fault("disk of SQLite stalls", freeze_disk),
    Fault("file descriptors used up", use_up(resource.RLIMIT_NOFILE, _open_files)),
    Fault("vendor hangs", vendor(5, lambda _: Reply(hang=True)), long=True),
    Fault("vendor resets", vendor(5, lambda _: Reply(reset=True))),
    Fault("vendor breaks off in mid-answer", vendor(5, lambda usual: replace(usual, half=True)), long=True),
    Fault("vendor answers 429", vendor(5, lambda _: Reply(429, {"Retry-After": "1"}))),
    Fault("vendor answers after the deadline", vendor(5, lambda usual: replace(usual, delay=CALL + 1)), long=True),
    Fault("memory limit reached", use_up(resource.RLIMIT_AS, _address_space), long=True),
    Fault("rolling upgrade and back", roll, long=True),
    Fault("clocks an hour wrong", wrong_clocks, long=True),
    Fault("RabbitMQ leader killed", server_faults.kill_rabbit, "whole"),
    Fault("RabbitMQ leader hangs", server_faults.stop_rabbit, "whole"),
    Fault("RabbitMQ quorum lost and back", server_faults.lose_quorum, "whole"),
)


def applicable(world: World, *, short: bool, only: str = "") -> list[Fault]:
    """The faults that this fleet can suffer; `only` those whose name holds one of the texts between its commas."""
    wanted = [text.strip() for text in only.split(",")]
    kind = "plain" if isinstance(world.servers, PlainServers) else "whole"
    disk = () if world.disk.real else ("disk",)
    clock = () if FAKETIME else ("clocks",)
    return [
        fault
        for fault in FAULTS
        if fault.on in {kind, "both"} and not (short and fault.long) and not fault.name.startswith((*disk, *clock))
        if any(text in fault.name for text in wanted)
    ]


def source_of(reference: str, folder: Path) -> Path:
    """The sources of another release, taken out of the repository's history."""
    tree = folder / "older"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", reference, "src"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    return tree
