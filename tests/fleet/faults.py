"""The faults of a fleet: each strikes, stays for a while and is healed; what heals by itself is left to heal."""

import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.fleet import server_faults
from tests.fleet.crews import CALL, LEASE
from tests.fleet.topology import PlainServers
from tests.fleet.world import World
from tests.support.process import Program
from tests.support.vendor import Answer, Entry, Reply, Vendor

ROOT = Path(__file__).parents[2]
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
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
        for _, _, program in victims:
            program.stop()
        time.sleep(LEASE * 1.25)
        for _, _, program in victims:
            program.cont()
        time.sleep(2)
    world.until_ready()


def use_up(limit: int, room: Callable[[Program], int]) -> Callable[[World], None]:
    """A limit of the system that a running process reaches, for six seconds."""

    def run(world: World) -> None:
        victims = world.victims()
        before = {program: resource.prlimit(program.pid, limit) for _, _, program in victims}
        with world.striking():
            for _, _, program in victims:
                resource.prlimit(program.pid, limit, (room(program), before[program][1]))
            time.sleep(6)
            for _, _, program in victims:
                if program.returncode is None:
                    resource.prlimit(program.pid, limit, before[program])
        world.until_ready()

    return run


def _open_files(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/fd").iterdir())) + 1


def _address_space(program: Program) -> int:
    pages = int(Path(f"/proc/{program.pid}/statm").read_text().split()[0])
    return pages * resource.getpagesize() + (4 << 20)


def wrong_clocks(world: World) -> None:
    """One process of each crew is an hour ahead, another an hour behind."""
    for number, shift in ((0, "+1h"), (1, "-1h")):
        for crew in world.crews:
            crew.extra[number] = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    _restart_numbers(world, 0, 1)
    time.sleep(10)
    for crew in world.crews:
        crew.extra[:2] = [{}, {}]
    _restart_numbers(world, 0, 1)


def _restart_numbers(world: World, *numbers: int) -> None:
    """A deployment: one process of each crew after another ends in its own time."""
    for number in numbers:
        with world.striking():
            programs = [crew.programs[number] for crew in world.crews]
            for program in programs:
                if program is not None and program.returncode is None:
                    program.terminate()
            for program in programs:
                if program is not None:
                    program.wait(60)
        world.until_ready()


def roll(world: World) -> None:
    """From this release to the other one and back, process by process."""
    struck = time.time()
    for tree in (world.older, None):
        for number in range(world.crews[0].size):
            for crew in world.crews:
                crew.older[number] = tree
            _restart_numbers(world, number)
    world.struck = struck


# --- ways ------------------------------------------------------------------------------------------------------------


def cut(world: World) -> None:
    with world.striking():
        for relay in world.servers.ways.all():
            relay.do(lambda proxy: proxy.reset())


def refuse(world: World) -> None:
    with world.striking():
        for relay in world.servers.ways.all():
            relay.do(lambda proxy: proxy.refuse())
        time.sleep(5)
        for relay in world.servers.ways.all():
            relay.do(lambda proxy: proxy.heal())


def delay(world: World) -> None:
    """A tenth of a second each way."""
    with world.striking():
        for relay in world.servers.ways.all():
            relay.do(lambda proxy: setattr(proxy, "latency", 0.1))
        time.sleep(8)
        for relay in world.servers.ways.all():
            relay.do(lambda proxy: proxy.heal())


def part(world: World) -> None:
    """The first process of each crew reaches nobody, for longer than its lease."""
    with world.striking():
        for relay in world.servers.ways.of_first():
            relay.do(lambda proxy: proxy.blackhole())
        time.sleep(LEASE * 1.25)
        for relay in world.servers.ways.of_first():
            relay.do(lambda proxy: proxy.heal())
        time.sleep(2)
    world.until_ready()


def part_one_way(world: World) -> None:
    """The servers hear the first process of each crew, and it hears nothing from them."""
    with world.striking():
        for relay in world.servers.ways.of_first():
            relay.do(lambda proxy: proxy.deafen())
        time.sleep(LEASE * 1.25)
        for relay in world.servers.ways.of_first():
            relay.do(lambda proxy: proxy.heal())
        time.sleep(2)
    world.until_ready()


# --- vendors ---------------------------------------------------------------------------------------------------------


def vendor(seconds: float, wrong: Callable[[Reply], Reply]) -> Callable[[World], None]:
    """Every vendor answers wrongly for a while; what was sent meanwhile has an outcome that nobody knows."""

    def run(world: World) -> None:
        usual: dict[Vendor, Answer] = {each: each.default for each in world.vendors.senders}
        with world.striking():
            for each, answer in usual.items():
                each.default = _instead(answer, wrong)
            time.sleep(seconds)
            for each, answer in usual.items():
                each.default = answer
            # The last wrong answer is as old as a call can get.
            time.sleep(CALL + 1)

    return run


def _instead(answer: Answer, wrong: Callable[[Reply], Reply]) -> Callable[[Entry], Reply]:
    return lambda entry: wrong(answer(entry) if callable(answer) else answer)


# --- disks -----------------------------------------------------------------------------------------------------------


def fill_disk(world: World) -> None:
    with world.striking():
        world.disk.fill()
        time.sleep(6)
        world.disk.empty()
    world.until_ready()


def freeze_disk(world: World) -> None:
    """Every write waits two seconds, four times."""
    with world.striking():
        for _ in range(4):
            world.disk.freeze()
            time.sleep(2)
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
    Fault("servers refuse for 5 s", refuse),
    Fault("0.1 s of delay each way", delay, long=True),
    Fault("partition of one process", part, long=True),
    Fault("partition in one direction", part_one_way, long=True),
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


def applicable(world: World, *, short: bool) -> list[Fault]:
    """The faults that this fleet can suffer."""
    kind = "plain" if isinstance(world.servers, PlainServers) else "whole"
    disk = () if world.disk.real else ("disk",)
    clock = () if FAKETIME else ("clocks",)
    return [
        fault
        for fault in FAULTS
        if fault.on in {kind, "both"} and not (short and fault.long) and not fault.name.startswith((*disk, *clock))
    ]


def source_of(reference: str, folder: Path) -> Path:
    """The sources of another release, taken out of the repository's history."""
    tree = folder / "older"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", reference, "src"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    return tree
