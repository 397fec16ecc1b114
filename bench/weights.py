"""What one installs and starts to get a first job through: megabytes, packages, seconds until ready, and memory."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.measure import Figure, Outcome
from bench.peers.peer import ROOT
from tests.support.servers import Postgres, Redis

PART = "weights"
ROUNDS = 3
START_SECONDS = 60.0
FOLDER = Path(".bench/weights")
CELERY = "from celery import Celery\napp = Celery('app', broker='{redis}')\n@app.task\ndef job(): pass\n"
DRAMATIQ = (
    "import dramatiq\nfrom dramatiq.brokers.redis import RedisBroker\n"
    "dramatiq.set_broker(RedisBroker(url='{redis}'))\n@dramatiq.actor\ndef job(): pass\n"
)
HUEY = "from huey import SqliteHuey\nhuey = SqliteHuey(filename='huey.db')\n@huey.task()\ndef job(): pass\n"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Something to install and to start, as its documentation begins."""

    pins: str
    app: str = ""
    command: tuple[str, ...]
    ready: str
    """What it prints when it takes work."""
    needs: str = "nothing else"


SUBJECTS = {
    "Carillon": Subject(
        pins="", command=("-m", "carillon.cli", "serve", "--log-format", "json"), ready='"ready"', needs="nothing else"
    ),
    "Celery": Subject(
        pins="celery==5.7.0\nredis==8.1.0\n",
        app=CELERY,
        command=("-m", "celery", "-A", "app", "worker", "--loglevel", "info"),
        ready="ready.",
        needs="Redis",
    ),
    "dramatiq": Subject(
        pins="dramatiq==2.2.1\nredis==8.1.0\n",
        app=DRAMATIQ,
        command=("-m", "dramatiq", "app"),
        ready="is ready for action",
        needs="Redis",
    ),
    "huey": Subject(
        pins="huey==3.5.4\n",
        app=HUEY,
        command=("-m", "huey.bin.huey_consumer", "app.huey"),
        ready="The following commands are available",
        needs="nothing else",
    ),
}


def measure(_: Postgres, progress: Callable[[str], None]) -> Outcome:
    outcome = Outcome()
    with Redis() as redis, tempfile.TemporaryDirectory() as scratch:
        for name, subject in SUBJECTS.items():
            progress(f"weights: {name}")
            folder = _installed(name, subject)
            packages = sorted(path.name.removesuffix(".dist-info") for path in folder.glob("*.dist-info"))
            outcome.settings[f"{name} installs"] = f"{', '.join(packages)}; it needs {subject.needs}"
            outcome.figures.append(Figure(PART, f"{name}, installed", "MB", [_size(folder) / 1e6]))
            outcome.figures.append(Figure(PART, f"{name}, packages", "packages", [float(len(packages))]))
            runs = [_run(subject, folder, Path(scratch) / f"{name}-{at}", redis.url()) for at in range(ROUNDS)]
            outcome.figures.append(Figure(PART, f"{name}, until ready", "s", [seconds for seconds, _ in runs]))
            outcome.figures.append(
                Figure(PART, f"{name}, memory when ready", "MB", [memory / 1e6 for _, memory in runs])
            )
    return outcome


def _installed(name: str, subject: Subject) -> Path:
    """Each in a folder of its own; a second call finds it there unless the pins have changed."""
    folder = (ROOT / FOLDER / name.lower()).absolute()
    # Carillon's lock names the libraries of its first installation; the package itself is this checkout.
    pins = subject.pins or (ROOT / "requirements.lock").read_text()
    stamp = folder.with_suffix(".txt")
    if not stamp.exists() or stamp.read_text() != pins:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (ROOT / ".bench" / ".gitignore").write_text("*\n")
        wanted = stamp.with_suffix(".part")
        wanted.write_text(pins)
        _pip(folder, "-r", str(wanted))
        wanted.rename(stamp)
    if not subject.pins:
        for old in (folder / "carillon", *folder.glob("carillon-*")):
            shutil.rmtree(old, ignore_errors=True)
        _pip(folder, "--no-deps", str(ROOT))
    return folder


def _pip(folder: Path, *wanted: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--target",
        str(folder),
    ]
    subprocess.run([*command, *wanted], check=True)


def _size(folder: Path) -> int:
    # Python writes the compiled files when it first runs: they are not what one downloads.
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sum(path.stat().st_size for path in files)


def _run(subject: Subject, folder: Path, place: Path, redis: str) -> tuple[float, int]:
    """The seconds until it takes work, and the memory that its processes alone have then."""
    place.mkdir()
    (place / "app.py").write_text(subject.app.format(redis=redis))
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "PYTHONPATH": f"{folder}:{place}"}
    environment |= {"DATABASE_URL": f"sqlite:///{place}/c.db", "CARILLON_HTTP__PORT": "0", "C_FORCE_ROOT": "1"}
    with _started(subject, place, environment) as (child, log):
        began = time.monotonic()
        while subject.ready not in log.read_text(errors="replace"):
            if child.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"{subject.command} did not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.005)
        return time.monotonic() - began, sum(_alone(pid) for pid in _tree(child.pid))


@contextmanager
def _started(
    subject: Subject, place: Path, environment: dict[str, str]
) -> "Iterator[tuple[subprocess.Popen[bytes], Path]]":
    log = place / "log"
    with log.open("wb") as out:
        command = [sys.executable, *subject.command]
        child = subprocess.Popen(command, cwd=place, env=environment, stdout=out, stderr=out)
    try:
        yield child, log
    finally:
        child.terminate()
        child.wait(30)


def _tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in _tree(int(child)))]


def _alone(pid: int) -> int:
    """What would be free without this process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
