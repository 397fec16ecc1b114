"""The unit file, verified by systemd where it is installed; no machine here is booted by it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carillon.config.reading import load
from tests.support.docs_facts import commands
from tests.support.sources import ROOT

FILE = ROOT / "deploy" / "carillon.service"
OURS = "/opt/carillon/bin/carillon"


@pytest.fixture(scope="module")
def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in FILE.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_it_drains_and_starts_again(unit: dict[str, list[str]]) -> None:
    drain = load("local", environ={}).work.drain_seconds
    assert float(unit["TimeoutStopSec"][0]) > drain + 10
    assert unit["KillMode"] == ["mixed"]
    assert unit["Restart"] == ["always"]
    assert unit["RestartPreventExitStatus"] == ["2"], "a wrong setting is not mended by starting again"
    assert unit["StartLimitIntervalSec"] == ["0"], "quick exits must not make systemd give up"
    header = FILE.read_text().partition("[Service]")[0]
    assert "StartLimitIntervalSec" in header, "systemd reads it in [Unit] only"
    program, command = unit["ExecStart"][0].split()
    assert (program, f"carillon {command}" in commands()) == (OURS, True)


def test_it_may_write_to_its_own_folder_only(unit: dict[str, list[str]]) -> None:
    assert unit["DynamicUser"] == unit["NoNewPrivileges"] == unit["PrivateTmp"] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["StateDirectory"] == ["carillon"]
    assert unit["WorkingDirectory"] == ["%S/carillon"]
    assert unit["CapabilityBoundingSet"] == [""]


def test_systemd_understands_it(tmp_path: Path) -> None:
    judge = shutil.which("systemd-analyze")
    if judge is None:
        # Nothing to install for it alone: the assertions above hold everywhere.
        return
    # verify wants the program to be there, and here it lies elsewhere.
    here = tmp_path / "carillon.service"
    here.write_text(FILE.read_text().replace(OURS, str(Path(sys.executable).with_name("carillon"))))
    done = subprocess.run([judge, "verify", str(here)], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    here.write_text(here.read_text().replace("KillMode=mixed", "KillMode=gently"))
    done = subprocess.run([judge, "verify", str(here)], capture_output=True, text=True, check=False, timeout=100)
    assert "gently" in done.stderr, "it looks"
