"""Runs the tests side by side, and then runs the few failed tests again, each alone.

Many tests start processes, send signals and wait for clocks, and a busy machine can make such a test late. A test that
passes alone does not fail the run: it is printed as UNSTEADY, and its cause is to be found. A test that fails alone
twice fails the run. If more than LOOKED_AT_AGAIN tests fail, none of them runs again.

A whole run ends with the tests that are marked `alone`, which need the machine for themselves: a fleet of many
processes, promises of a time that a busy machine would break, and a child process that takes what others leave.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
SOME_FAILED = 1
LOOKED_AT_AGAIN = 8
TRIES_ALONE = 2
QUICK = ("tests/house", "tests/unit", "tests/contract", "-m", "not slow", "--hypothesis-profile", "quick")
BESIDE_OTHERS = ["-m", "not alone"]
ALONE = ["-m", "alone", "--workers", "0", "tests/chaos", "tests/scenario", "tests/console"]
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
ROOMY = 4 << 30
# Without compiled files every worker compiles and rewrites all tests anew: 27 seconds of work instead of 9.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main(arguments: list[str]) -> int:
    """Return 0 if every test passed, at least alone; otherwise pytest's exit code.

    `--quick` stands for the house, unit and contract tests without the slow ones.
    """
    arguments = [part for each in arguments for part in (QUICK if each == "--quick" else (each,))]
    with _scratch():
        if arguments:
            return _run(arguments)
        return _run(BESIDE_OTHERS) or _run(ALONE)


@contextmanager
def _scratch() -> Iterator[None]:
    """Keep temporary files in memory if there is room, because SQLite and durable servers wait for a disk.

    Tests kill processes and never the machine: a file in memory survives a killed process as a file on disk does.
    """
    if not _has_room():
        yield
        return
    with TemporaryDirectory(prefix="carillon-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        # PostgreSQL works as another user.
        Path(folder).chmod(0o755)
        ENVIRONMENT["TMPDIR"] = folder
        yield


def _has_room() -> bool:
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return False
    found = os.statvfs(MEMORY)
    return found.f_bavail * found.f_frsize >= ROOMY and not found.f_flag & os.ST_NOEXEC


def _run(arguments: list[str]) -> int:
    FAILED.unlink(missing_ok=True)
    code = _pytest(arguments)
    failed = _failed()
    if code != SOME_FAILED or not 0 < len(failed) <= LOOKED_AT_AGAIN:
        return code
    print(f"\n{len(failed)} failed beside others; once more, each alone:", *failed, sep="\n  ", flush=True)
    guilty = [each for each in failed if not _passes_alone(each)]
    unsteady = [each for each in failed if each not in guilty]
    if unsteady:
        print("UNSTEADY, passed only alone:", *unsteady, sep="\n  ", flush=True)
    if guilty:
        print("FAILED, alone too:", *guilty, sep="\n  ", flush=True)
    return SOME_FAILED if guilty else 0


def _passes_alone(test: str) -> bool:
    return any(_pytest([test, "--workers", "0"]) == 0 for _ in range(TRIES_ALONE))


def _pytest(arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=False).returncode  # noqa: S603 - ourselves, with our own arguments


def _failed() -> list[str]:
    return list(json.loads(FAILED.read_text())) if FAILED.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
