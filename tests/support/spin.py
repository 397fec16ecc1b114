"""Model checking with Spin: a Promela model becomes a C program that tries every order of its steps."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.support.sources import ROOT

MODELS = ROOT / "models"
PACKAGE = ROOT / "src" / "carillon"
LIMIT_SECONDS = 280
_ERRORS = re.compile(r"errors: (\d+)")
_STATES = re.compile(r"(\d+(?:\.\d+e\+\d+)?) states, stored")
_VIOLATED = re.compile(r"pan:1: (.+?) \(at depth \d+\)")
_UNREACHED = re.compile(r"^\t(\w+\.pml:\d+, state \d+, .+)$", re.MULTILINE)
_CITATION = re.compile(r"// = (\S+)(?: (\w+))?$", re.MULTILINE)


class Checked(msgspec.Struct, frozen=True):
    """What every reachable state of a model said."""

    errors: int
    states: int
    violated: str
    unreached: list[str]


class Citation(msgspec.Struct, frozen=True):
    """What a step of a model stands for."""

    path: str
    name: str


def check(model: str, *defines: str, live: bool = False, quick: bool = False) -> Checked:
    """Try all orders; with `live`, look for fair ways to go on for ever without arriving."""
    with tempfile.TemporaryDirectory(prefix="spin-") as folder:
        place = Path(folder)
        shutil.copy(MODELS / f"{model}.pml", place)
        flags = [f"-D{name}" for name in (*defines, *(["LIVE"] if live else []))]
        _run(place, "spin", "-a", *flags, f"{model}.pml")
        # Optimising takes longer than most searches.
        kind = ["-DNFAIR=5"] if live else ["-DSAFETY"]
        _run(place, "gcc", "-w", "-O1" if quick else "-O0", "-DMEMLIM=2048", *kind, "-o", "pan", "pan.c")
        # To clear a table for millions of states takes longer than most searches, too.
        said = _run(place, "./pan", "-m100000", "-w24" if quick else "-w20", *(["-a", "-f"] if live else []))
    return read(said)


def read(said: str) -> Checked:
    """What pan's report says; a search that did not look everywhere is no answer."""
    errors, states = _ERRORS.search(said), _STATES.search(said)
    assert errors is not None, said
    assert states is not None, said
    assert "too small" not in said, said
    assert "out of memory" not in said, said
    violated = _VIOLATED.search(said)
    unreached = [line for line in _UNREACHED.findall(said) if '"-end-"' not in line]
    return Checked(int(errors[1]), int(float(states[1])), "" if violated is None else violated[1], unreached)


def citations(text: str) -> list[Citation]:
    """Every script and statement that a model says it stands for."""
    return [Citation(path, name) for path, name in _CITATION.findall(text)]


def missing(cited: list[Citation]) -> Iterator[str]:
    """Those that do not exist under that name."""
    for one in cited:
        path = PACKAGE / one.path
        if not path.is_file():
            yield f"{one.path}: there is no such file"
        elif one.name and not _names(path, one.name):
            yield f"{one.path}: nothing there is named {one.name}"


def _names(path: Path, name: str) -> bool:
    pattern = {
        ".sql": rf"^-- name: {name}$",
        ".lua": rf"'{name}'|\bfunction {name}\(|\b{name}\|",
        ".py": rf"\bdef {name}\(",
    }[path.suffix]
    return re.search(pattern, path.read_text(), re.MULTILINE) is not None


def _run(place: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
