"""A forked carillon is the command that a user starts: it has its own words, environment, folder, code and signals."""

import os
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.fork_command import ForkCommand
from tests.support.forkserver import ForkServer, can_fork, root
from tests.support.process import Program, carillon_command, run_carillon

pytestmark = pytest.mark.slow

EMBEDDED = {"CARILLON_HTTP__PORT": "0"}


def test_a_fork_and_a_new_process_say_the_same(tmp_path: Path) -> None:
    words, env = ["config", "show", "--json"], {"PATH": "/usr/bin:/bin", "CARILLON_HTTP__PORT": "4321"}
    started = subprocess.run(
        [*carillon_command(), *words], env=env, cwd=tmp_path, capture_output=True, check=True, text=True
    )
    forked = run_carillon(words, env=env, cwd=tmp_path, check=True)
    assert "4321" in forked.stdout
    assert (forked.stdout, forked.stderr) == (started.stdout, started.stderr)


def test_it_ends_with_the_commands_code() -> None:
    done = run_carillon(["serve", "--roles", "nobody"], env=EMBEDDED)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--roles nobody" in done.stderr
    with pytest.raises(subprocess.CalledProcessError):
        run_carillon(["serve", "--roles", "nobody"], env=EMBEDDED, check=True)


def test_it_leaves_as_a_new_process_does() -> None:
    """It does not take apart what the server imported; what the interpreter says at its end is said all the same."""
    with ForkCommand() as forked, Path("/dev/full").open("w") as full:
        for command in ([str(forked.folder / "carillon"), "version"], [*carillon_command(), "version"]):
            done = subprocess.run(
                command, env={"PATH": "/usr/bin:/bin"}, stdout=full, stderr=subprocess.PIPE, check=False
            )
            assert done.returncode == 120
            assert b"Exception ignored in" in done.stderr


def test_workers_share_what_was_imported() -> None:
    """A worker's server is a fork of the run's one root, not a process that imports everything anew."""
    servers = [ForkServer(root("command")) for _ in range(2)]
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        children = [each.start(["version"], {"PATH": ""}, None, [nothing] * 3) for each in servers]
    finally:
        os.close(nothing)
    parents = [Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[1] for child in children]
    roots = {Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1] for parent in parents}
    assert [child.wait(60) for child in children] == [0, 0]
    for each in servers:
        each.close()
    assert len({*parents}) == 2
    assert len(roots) == 1


def test_it_works_in_its_folder_and_hears_signals(tmp_path: Path) -> None:
    with Program("serve", env=EMBEDDED, cwd=tmp_path) as program:
        program.wait_ready()
        assert Path(f"/proc/{program.pid}/cwd").readlink() == tmp_path
        assert program.returncode is None
        program.terminate()
        assert program.wait() == 0
        program.terminate()
    with Program("serve", env=EMBEDDED, cwd=tmp_path) as program:
        program.wait_ready()
        program.kill()
        assert program.returncode == -signal.SIGKILL


def test_no_two_forks_draw_the_same_ids(tmp_path: Path) -> None:
    ids = set()
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        with Program("serve", env=EMBEDDED, cwd=tmp_path / name) as program:
            address = program.wait_ready()["addresses"][0]
            ids.add(urlopen(f"{address}/healthz").headers["X-Correlation-Id"])  # noqa: S310 - our own address
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("variable", "value", "same"),
    [
        ("CARILLON_HTTP__PORT", "0", True),
        ("PYTHONUNBUFFERED", "1", True),
        ("PYTHONPATH", "/elsewhere", False),
        ("LD_PRELOAD", "libfaketime.so.1", False),
        ("TZ", "Asia/Tokyo", False),
        ("OTEL_SDK_DISABLED", "true", False),
    ],
)
def test_what_the_interpreter_reads_itself_needs_a_new_process(variable: str, value: str, same: bool) -> None:  # noqa: FBT001
    assert can_fork({"PATH": os.environ["PATH"], variable: value}) is same
