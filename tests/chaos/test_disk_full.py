"""SQLite on a full disk: 503, nothing half stored, and everything goes on by itself when there is space again."""

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos import properties
from tests.support import tables
from tests.support.process import Program
from tests.support.stand import Rules, Stand

SPACE = 6 * 1024 * 1024
BEFORE, DURING, AFTER = 60, 40, 60
HALF = (
    "SELECT (SELECT count(*) FROM records) - (SELECT count(*) FROM routes) AS n "
    "UNION ALL SELECT count(*) FROM records WHERE idempotency_key LIKE 'key-during-%'"
)


class Disk:
    """A small file system where we may mount one, else a limit on the size of the process's files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mounted = os.geteuid() == 0

    def full(self, program: Program) -> None:
        if not self.mounted:
            largest = max(path.stat().st_size for path in self.folder.iterdir())
            resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
            return
        with (self.folder / "filler").open("wb", buffering=0) as filler:
            for size in (65536, 4096, 1):
                while self._write(filler.fileno(), size):
                    pass

    def free(self, program: Program) -> None:
        if self.mounted:
            (self.folder / "filler").unlink()
        else:
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(program.pid, resource.RLIMIT_FSIZE, unlimited)

    def _write(self, file: int, size: int) -> bool:
        try:
            return os.write(file, b"x" * size) > 0
        except OSError:
            return False


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    found = Disk(folder)
    if found.mounted:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SPACE}", "tmpfs", str(folder)], check=True)
    yield found
    if found.mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def fill_the_disk(stand: Stand, disk: Disk, mutant: str | None = None) -> None:
    """Accept before, be refused during, and go on after; whatever is said in between is checked."""
    program = await stand.start(mutant=mutant)
    await stand.send(stand.pushes(f"before-{place}" for place in range(BEFORE)))
    await stand.until_terminal(BEFORE)
    disk.full(program)
    refused = await stand.producer.once(stand.pushes(f"during-{place}" for place in range(DURING)))
    disk.free(program)
    properties.never_promised_while_down(refused)
    found = [row["n"] for row in await tables.read(stand.url, HALF)]
    properties.hold("nothing_half_stored", found == [0, 0], found)
    await stand.send(stand.pushes(f"after-{place}" for place in range(AFTER)))
    await stand.until_terminal(BEFORE + AFTER)
    await properties.everything_holds(stand)
    properties.hold("recovers_alone", program.returncode is None, program.returncode)


async def test_a_full_disk_is_said_and_survived(disk: Disk, tmp_path: Path, figures: Callable[..., None]) -> None:
    async with Stand(tmp_path / "stand", f"sqlite:///{disk.folder}/ledger.db", Rules(concurrency=100)) as stand:
        await fill_the_disk(stand, disk)
        figures(accepted=BEFORE + AFTER, refused=DURING, half_stored=0)
