"""Completion, as a shell asks for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
ASK = """
{script}
COMP_WORDS=({words}); COMP_CWORD={last}
_carillon_completion carillon
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def bash(script: str, home: Path) -> str:
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(home)}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environment, capture_output=True, check=False, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bash("_CARILLON_COMPLETE=source_bash carillon", tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("carillon", "to"), {"top"}),
        (("carillon", "ledger", ""), {"copy"}),
        (("carillon", "ledger", "copy", "--r"), {"--resume"}),
        (("carillon", "config", "show", "--blueprint", "l"), {"listo", "local"}),
        (("carillon", "tail", "--only", ""), {"notifications", "events"}),
    ],
)
def test_bash_is_offered_what_fits(typed: tuple[str, ...], offered: set[str], script: str, tmp_path: Path) -> None:
    words = " ".join(f"'{word}'" for word in typed)
    assert set(bash(ASK.format(script=script, words=words, last=len(typed) - 1), tmp_path).split()) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str, tmp_path: Path) -> None:
    assert f"_CARILLON_COMPLETE=complete_{shell}" in bash(f"_CARILLON_COMPLETE=source_{shell} carillon", tmp_path)


def test_it_installs_itself(tmp_path: Path) -> None:
    # Not the last command of the shell, which would take the shell's place.
    said = bash("carillon --install-completion; true", tmp_path)
    assert "bash" in said
    assert "carillon" in (tmp_path / ".bashrc").read_text()
