"""The workers that run the tests: nothing is left out, nothing is mixed up, and what dies is blamed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sources import ROOT

pytestmark = pytest.mark.slow

CONFTEST = """
import pytest
from tests.support.workers import pytest_addoption, pytest_collection_modifyitems, pytest_configure

def note(word):
    with open("notes", "a") as notes:
        notes.write(word + chr(10))

@pytest.fixture(scope="session")
def server():
    note("server up")
    yield
    note("server down")

@pytest.fixture(scope="module")
def table(request):
    yield
    note(f"table of {request.module.__name__} down")
"""


def run(folder: Path, files: dict[str, str], *words: str) -> tuple[int, str]:
    """Run pytest with two workers over these files."""
    folder.mkdir(exist_ok=True)
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in files.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--disable-plugin-autoload", "--workers", "2", *words]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_all_run_once_with_one_session_each_and_fixtures_of_a_module_end_with_it(tmp_path: Path) -> None:
    test = "import os\ndef test_one(server, table): pass\ndef test_two(server, table): pass\n"
    code, said = run(tmp_path, {f"test_{letter}.py": test for letter in "abcdef"})
    assert code == 0, said
    assert "12 passed" in said
    notes = (tmp_path / "notes").read_text().splitlines()
    assert notes.count("server up") == notes.count("server down") <= 2
    assert sorted(note for note in notes if note.startswith("table")) == [
        f"table of test_{letter} down" for letter in "abcdef"
    ]


def test_output_belongs_to_the_test_that_printed_it(tmp_path: Path) -> None:
    test = "import os\ndef test_it():\n    os.write(1, b'heard ' + b'in {0}')\n    assert False\n"
    code, said = run(tmp_path, {f"test_{letter}.py": test.format(letter) for letter in "ab"})
    assert code == 1
    a, b = said.index("test_a.py:4"), said.index("test_b.py:4")
    assert [said.count("heard in a"), said.count("heard in b")] == [1, 1], said
    assert (said.index("heard in a") > a, said.index("heard in b") > b) == (True, True), said
    assert (said.index("heard in a") < b) == (a < b), said


def test_a_worker_that_dies_is_blamed_on_its_test_and_the_others_run_all_the_same(tmp_path: Path) -> None:
    deadly = "import os\ndef test_before(): pass\ndef test_deadly(): os._exit(7)\ndef test_after(): pass\n"
    code, said = run(tmp_path, {"test_a.py": deadly, "test_b.py": "def test_it(): pass\n"})
    assert code == 1
    assert "the worker ended with 7 while it ran test_a.py::test_deadly" in said
    assert "1 failed, 3 passed" in said, said


def test_what_fails_behind_the_last_test_fails_the_run(tmp_path: Path) -> None:
    conftest_breaks = (
        "import pytest\n@pytest.fixture(scope='session')\ndef broken():\n    yield\n"
        "    raise RuntimeError('down badly')\n"
        "def test_it(broken): pass\n"
    )
    code, said = run(tmp_path, {"test_a.py": conftest_breaks})
    assert code == 1
    assert "down badly" in said


def test_the_first_failure_ends_the_run_if_asked(tmp_path: Path) -> None:
    failing = "def test_it(): assert False\n"
    many = {f"test_{number:02}.py": failing for number in range(20)}
    code, said = run(tmp_path, many, "-x")
    assert code == 1
    assert "20 failed" not in said
    assert "stopping after" in said


def test_every_fork_has_its_own_random_numbers_and_folders(tmp_path: Path) -> None:
    test = (
        "import os, random\nfrom conftest import note\n"
        "def test_it(tmp_path_factory):\n"
        "    note(f'{os.getpid()} {random.random()} {tmp_path_factory.getbasetemp()}')\n"
    )
    code, said = run(tmp_path, {f"test_{letter}.py": test for letter in "abcdefgh"})
    assert code == 0, said
    notes = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    assert len({number for _, number, _ in notes}) == len(notes)
    assert len({pid for pid, _, _ in notes}) == len({folder for _, _, folder in notes})
