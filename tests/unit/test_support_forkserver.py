"""A forked carillon is the command that a user starts: it has its own words, environment, folder, code and signals."""

import os
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.forkserver import can_fork
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
