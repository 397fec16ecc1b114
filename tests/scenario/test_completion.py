"""Completion, as a shell asks for it."""

import os
import shutil
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
# A terminal of its own in which zsh is at home: what is typed ends in one TAB, and the whole word must appear.
PRESS_TAB = """
zmodload zsh/zpty
zpty shell 'TERM=dumb zsh -i'
zpty -w shell 'PS1=""; print re""ady'
zpty -r -m shell said '*ready*'
zpty -n -w shell "{typed}"$'\\t'
zpty -r -m shell said '*{whole}*' && print -r -- seen
zpty -d shell
"""


def run(command: list[str], home: Path) -> str:
    environment = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def bash(script: str, home: Path) -> str:
    return run(["bash", "--norc", "-c", script], home)


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bash("_CARILLON_COMPLETE=source_bash carillon", tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("carillon", "to"), {"top"}),
        (("carillon", "ledger", ""), {"copy", "tidy"}),
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


@needs("zsh")
@pytest.mark.parametrize(
    ("typed", "whole"),
    [("carillon ser", "carillon serve"), ("carillon config show --blueprint lis", "--blueprint listo")],
)
def test_zsh_answers_its_first_tab(typed: str, whole: str, tmp_path: Path) -> None:
    run(["zsh", "-f", "-c", "carillon --install-completion; true"], tmp_path)
    assert "compinit" in (tmp_path / ".zshrc").read_text()
    assert run(["zsh", "-f", "-c", PRESS_TAB.format(typed=typed, whole=whole)], tmp_path) == "seen\n"


@needs("fish")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("carillon se", {"send", "serve"}),
        ("carillon ledger copy --r", {"--resume"}),
        ("carillon config show --blueprint l", {"listo", "local"}),
    ],
)
def test_fish_is_offered_what_fits(typed: str, offered: set[str], tmp_path: Path) -> None:
    run(["fish", "-c", "carillon --install-completion; true"], tmp_path)
    said = run(["fish", "-c", f'complete -C "{typed}"'], tmp_path)
    assert {line.partition("\t")[0] for line in said.splitlines() if line} == offered


# What a command does not need and every other one waits for.
HEAVY = {"asyncpg", "granian", "uvloop", "jinja2", "redis", "cryptography", "carillon.compose"}
LOADED = """
import sys
from carillon.cli import app
try:
    app({words})
except SystemExit:
    pass
print(*(name for name in {heavy} if name in sys.modules))
"""


def loaded(words: list[str], tmp_path: Path) -> list[str]:
    script = LOADED.format(words=words, heavy=sorted(HEAVY))
    return run([sys.executable, "-c", script], tmp_path).splitlines()[-1].split()


@pytest.mark.parametrize("words", [["version"], ["send", "--help"]])
def test_a_command_loads_what_it_needs(words: list[str], tmp_path: Path) -> None:
    assert not loaded(words, tmp_path)


def test_control_what_a_command_needs_is_seen(tmp_path: Path) -> None:
    assert "carillon.compose" in loaded(["doctor"], tmp_path)
