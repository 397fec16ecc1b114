"""Runs the tests side by side, and the few that failed once more alone.

Processes, signals and clocks are what many of these tests are about, and a machine busy with others can make one of
them late. Whoever passes alone is named as unsteady: its waiting is to be mended, but it says nothing against the code.
Whoever fails alone, twice, has failed, and many failures are not looked at again.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
SOME_FAILED = 1
LOOKED_AT_AGAIN = 8
TRIES_ALONE = 2
QUICK = ("tests/house", "tests/unit", "tests/contract")
# Without compiled files every worker compiles and rewrites all tests anew: 27 seconds of work instead of 9.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main(arguments: list[str]) -> int:
    """Answer with pytest's own exit code, of the second look where there was one.

    `--quick` stands for the folders whose tests start no program.
    """
    arguments = [part for each in arguments for part in (QUICK if each == "--quick" else (each,))]
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
    return any(_pytest([test, "-n", "0"]) == 0 for _ in range(TRIES_ALONE))


def _pytest(arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=False).returncode  # noqa: S603 - ourselves, with our own arguments


def _failed() -> list[str]:
    return list(json.loads(FAILED.read_text())) if FAILED.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
