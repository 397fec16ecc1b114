"""Runs the tests side by side, and the few that failed once more alone.

Processes, signals and clocks are what many of these tests are about, and a machine busy with others can make one of
them late. Whoever passes alone is named as unsteady: its waiting is to be mended, but it says nothing against the code.
Whoever fails alone, twice, has failed, and many failures are not looked at again.
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
# Of all plugins this one alone takes long to import, in each worker, and only the fuzz tests of the API use its tool.
QUICK = (
    *("tests/house", "tests/unit", "tests/contract", "-m", "not slow", "-p", "no:schemathesis"),
    *("--hypothesis-profile", "quick"),
)
MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
ROOMY = 4 << 30
# Without compiled files every worker compiles and rewrites all tests anew: 27 seconds of work instead of 9.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main(arguments: list[str]) -> int:
    """Answer with pytest's own exit code, of the second look where there was one.

    `--quick` stands for the folders whose tests start no program.
    """
    arguments = [part for each in arguments for part in (QUICK if each == "--quick" else (each,))]
    with _scratch():
        return _run(arguments)


@contextmanager
def _scratch() -> Iterator[None]:
    """Keep temporary files in memory where there is room: SQLite and durable servers wait for the disk otherwise.

    Tests kill processes, not machines: what a process has written survives it in memory as well as on a disk.
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
