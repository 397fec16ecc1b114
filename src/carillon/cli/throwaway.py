"""A Carillon of one's own for a few seconds: the sandbox for every channel, a ledger that is gone afterwards."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from carillon.domain.errors import CarillonError

START_SECONDS, END_SECONDS = 60.0, 30.0
# Nothing else of the caller's environment: credentials in it would make vendors out of the sandbox.
_INHERITED = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")


class NotStarted(CarillonError):
    """The throw-away instance did not come up."""


@contextmanager
def throwaway() -> Iterator[str]:
    """Its address, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="carillon-load-") as folder:
        log = Path(folder) / "log"
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ} | {
            "DATABASE_URL": f"sqlite:///{folder}/carillon.db",
            "CARILLON_HTTP__PORT": "0",
            "CARILLON_LOG__FORMAT": "json",
            "CARILLON_LOG__LEVEL": "warning",
        }
        with log.open("wb") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "carillon.cli", "serve", "--blueprint", "local"],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                # So that Ctrl-C is ours to answer: the server ends after its last answer was read.
                start_new_session=True,
            )
        try:
            yield _address(child, log)
        finally:
            child.terminate()
            try:
                child.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _address(child: "subprocess.Popen[bytes]", log: Path) -> str:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"ready"' in line and line.endswith("}"):
                return str(json.loads(line)["addresses"][0])
        if child.poll() is not None:
            break
        time.sleep(0.05)
    said = log.read_text(encoding="utf-8", errors="replace")[-500:]
    raise NotStarted(f"the throw-away instance did not start: {said or 'it said nothing'}")
