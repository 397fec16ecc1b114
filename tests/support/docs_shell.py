"""A reader who types a page's commands: one shell, real servers behind `carillon serve`, everything gone afterwards."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.docs_pages import Block, Step, blocks, steps
from tests.support.fork_command import ForkCommand
from tests.support.ports import free_port
from tests.support.process import Program

_MARK = "=== the command before this line ended with "
_ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.DOTALL)
_SERVE = {("carillon", "serve"): 2, ("make", "run"): 2}
# The ports that pages print; each becomes a free one.
_PORTS = ("8080", "8081", "9000")


class Reader:
    """Follows one page in a folder of its own; `replaced` are further texts that stand for something else here."""

    def __init__(self, folder: Path, replaced: Mapping[str, str], env: Mapping[str, str]) -> None:
        self.folder = folder
        self.ports = {port: str(free_port()) for port in _PORTS}
        self._replaced = {**replaced, **self.ports}
        (folder / ".venv").symlink_to(sys.prefix)
        # Each command in earnest would import all of carillon anew.
        self._command = ForkCommand().__enter__()
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        self._shell = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            # A session of its own, so that what a page starts in the background ends with it.
            start_new_session=True,
            env={
                **kept,
                "PATH": f"{self._command.folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                "COLUMNS": "120",
                "CARILLON_HTTP__PORT": self.ports["8080"],
                "CARILLON_URL": f"http://127.0.0.1:{self.ports['8080']}",
                "CARILLON_DRILL__TIME_SCALE": "0.01",
                **env,
            },
        )
        self._servers: dict[str, Program] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.communicate()
        self._command.__exit__()
        for server in self._servers.values():
            if error is not None:
                error.add_note(server.tail(6))
            _end(server)

    def follow(self, block: Block) -> None:
        if block.kind == "console":
            for step in steps(block):
                self._take(step)
        elif block.file is not None:
            place = self.folder / block.file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self._here(block.text))

    def _take(self, step: Step) -> None:
        command = self._here(step.command)
        words = [] if "\n" in command else shlex.split(command)
        given = {}
        while words and (found := _ASSIGNMENT.fullmatch(words[0])):
            given[found[1]] = found[2]
            words.pop(0)
        # What a page starts in the background it also ends itself, in its own shell.
        if tuple(words[:2]) in _SERVE and words[-1] != "&":
            self._serve(words[2:], given)
        elif words[:1] != ["make"]:
            self._expect(step, self._type(command))

    def _serve(self, args: list[str], given: dict[str, str]) -> None:
        env = {**self._environment(), **given}
        port = env["CARILLON_HTTP__PORT"]
        if port in self._servers:
            _end(self._servers.pop(port))
        # The shell's own variables come along; the test's do not.
        self._servers[port] = Program("serve", *args, env=env, cwd=self.folder)
        self._servers[port].wait_ready()

    def _environment(self) -> dict[str, str]:
        text, _ = self._type("env -0 | tr '\\0' '\\n'")
        return {found[1]: found[2] for line in text.splitlines() if (found := _ASSIGNMENT.fullmatch(line))}

    def _type(self, command: str) -> tuple[str, int]:
        if self._shell.stdin is None or self._shell.stdout is None:
            raise RuntimeError("a shell without pipes")
        self._shell.stdin.write(f"{command}\ncode=$?; echo; echo '{_MARK}'$code\n")
        self._shell.stdin.flush()
        text = ""
        for line in self._shell.stdout:
            if line.startswith(_MARK):
                return text, int(line.removeprefix(_MARK))
            text += line
        raise RuntimeError(f"the shell ended at {command!r}:\n{text}")

    def _expect(self, step: Step, found: tuple[str, int]) -> None:
        text, code = found
        assert code == 0, f"$ {step.command}\nended with {code}:\n{text}"
        if step.output:
            wanted = ".*?".join(re.escape(_plain(part)) for part in self._here(step.output).split("…"))
            assert re.fullmatch(f"{wanted}", _plain(text), re.DOTALL), f"$ {step.command}\nprinted:\n{text}"

    def _here(self, text: str) -> str:
        # All at once: a free port may contain the digits of a port that pages print.
        printed = "|".join(re.escape(each) for each in sorted(self._replaced, key=len, reverse=True))
        return re.sub(printed, lambda found: self._replaced[found[0]], text)


def _end(server: Program) -> None:
    """As Ctrl-C does: a supervisor takes its children along."""
    server.terminate()
    server.wait()
    server.close()


def _plain(text: str) -> str:
    return " ".join(text.split())


def follow(
    page: Path, folder: Path, replaced: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Do what a page says, from its first block to its last."""
    with Reader(folder, replaced or {}, env or {}) as reader:
        for block in blocks(page):
            reader.follow(block)
