"""A process's end is told by what it waits, however busy the machine is; one that waits too long is left."""

import os
import signal
import sys
import textwrap
from contextlib import ExitStack

import pytest

from tests.support.ending import ended
from tests.support.process import Program

pytestmark = pytest.mark.slow

ASLEEP = "time.sleep(0.5)"
BUSY = "while time.process_time() < 0.8: pass"
FOREVER = "time.sleep(600)"


def leaving(how: str) -> Program:
    script = """
        import json, signal, sys, time
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        print(json.dumps({"event": "ready"}))
        signal.sigwait([signal.SIGTERM])
        HOW
        sys.exit(3)
    """
    return Program(command=[sys.executable, "-c", textwrap.dedent(script).replace("HOW", how)])


@pytest.mark.parametrize(
    ("how", "at_least", "at_most"), [(ASLEEP, 0.45, 2.0), (BUSY, 0.0, 0.6)], ids=["asleep", "busy"]
)
def test_what_counts_is_waiting(how: str, at_least: float, at_most: float) -> None:
    with leaving(how) as program:
        program.wait_ready()
        ending = ended(program, 60)
    assert ending.code == 3
    assert ending.took >= ending.waited
    assert at_least <= ending.waited <= at_most, ending


def test_what_the_machine_withholds_is_not_waiting() -> None:
    """Beside hungrier ones on the same processor, work takes far longer and is no waiting."""
    one = {min(os.sched_getaffinity(0))}
    with leaving(BUSY) as program, ExitStack() as stack:
        program.wait_ready()
        hungry = [Program(command=[sys.executable, "-c", "while True: pass"]) for _ in range(3)]
        for each in (program, *map(stack.enter_context, hungry)):
            os.sched_setaffinity(each.pid, one)
        ending = ended(program, 60)
    assert ending.took > 1.4, ending
    assert ending.waited < 0.6, ending


def test_who_waits_too_long_is_left() -> None:
    with leaving(FOREVER) as program:
        program.wait_ready()
        ending = ended(program, 0.3)
        assert ending.code is None
        assert ending.waited > 0.3
        assert program.returncode is None
        program.kill()
        assert program.returncode == -signal.SIGKILL
