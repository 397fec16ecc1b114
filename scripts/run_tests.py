"""Runs the tests side by side, and the few that failed once more alone.

Processes, signals and clocks are what many of these tests are about, and a machine busy with others can make one of
them late. Whoever passes alone is named as unsteady: its waiting is to be mended, but it says nothing against the code.
Whoever fails alone has failed, and many failures are not looked at twice.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
SOME_FAILED = 1
LOOKED_AT_TWICE = 4


def main(arguments: list[str]) -> int:
    """Answer with pytest's own exit code, of the second look where there was one."""
    FAILED.unlink(missing_ok=True)
    code = _pytest(arguments)
    failed = _failed()
    if code != SOME_FAILED or not 0 < len(failed) <= LOOKED_AT_TWICE:
        return code
    print(f"\n{len(failed)} failed beside others; once more, alone:", *failed, sep="\n  ", flush=True)
    if _pytest([*failed, "-n", "0"]) != 0:
        return SOME_FAILED
    print("UNSTEADY, passed only alone:", *failed, sep="\n  ", flush=True)
    return 0


def _pytest(arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - ourselves, with our own arguments


def _failed() -> list[str]:
    return list(json.loads(FAILED.read_text())) if FAILED.exists() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
