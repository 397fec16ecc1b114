"""A watched child process is read, signalled and always reaped."""

import json
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.blueprint_stand import ProgramStand
from tests.support.daemon import is_alive
from tests.support.process import Program

SCRIPT = textwrap.dedent("""
    import json, signal, sys
    print("no json")
    print(json.dumps({"event": "ready", "http": "127.0.0.1:1"}))
    print(json.dumps({"event": "sent", "n": 1}))
    print(json.dumps({"event": "sent", "n": 2}), file=sys.stderr)
    signal.sigwait([signal.SIGTERM])
    print(json.dumps({"event": "stopped"}))
""")
# Blocked before the script runs, so that SIGTERM waits for sigwait.
COMMAND = [sys.executable, "-c", "import signal; signal.pthread_sigmask(0, [15])\n" + SCRIPT]


async def test_reads_events_until_the_end() -> None:
    with Program(command=COMMAND) as program:
        assert program.wait_ready()["http"] == "127.0.0.1:1"
        assert await program.until("sent", lambda line: line["n"] == 2) == {"event": "sent", "n": 2}
        since = program.mark()
        program.stop()
        program.cont()
        program.terminate()
        assert program.wait_for("stopped", since=since) == {"event": "stopped"}
        assert program.wait() == 0
        # Two pipes are read by two threads: their lines keep their order only within each.
        assert sorted(line["n"] for line in program.events("sent")) == [1, 2]
        assert program.noise == ["no json"]


def test_an_early_end_is_not_waited_out() -> None:
    with (
        Program(command=[sys.executable, "-c", "raise SystemExit('bad configuration')"]) as program,
        pytest.raises(TimeoutError, match=r"ended with 1\n.*bad configuration"),
    ):
        program.wait_ready(timeout=100)


def test_kill_reaps() -> None:
    with Program(command=COMMAND, env={"BELL": json.dumps("x")}) as program:
        program.wait_ready()
        program.kill()
        assert program.returncode == -signal.SIGKILL
    assert not is_alive(program.pid)


def test_a_failure_on_a_stand_tells_its_processes_last_words_and_ends_them(tmp_path: Path) -> None:
    stand, program = ProgramStand(tmp_path, ""), Program(command=COMMAND)
    stand.programs.append(program)
    program.wait_ready()
    with pytest.raises(AssertionError) as raised, stand:
        raise AssertionError
    (said,) = raised.value.__notes__
    assert f"pid {program.pid}" in said
    assert '"event": "ready"' in said
    assert not is_alive(program.pid)
