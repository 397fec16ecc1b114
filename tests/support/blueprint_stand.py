"""What stands share whose tests run outside an event loop: their processes, what those are told, and their end."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.support import tables
from tests.support.databases import Databases
from tests.support.process import Program, add_last_words
from tests.support.sources import ROOT


class ProgramStand:
    """A folder, a database and the processes over it; processes and stubs are gone when the context ends."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.url = url
        self.programs: list[Program] = []
        self._stack = ExitStack()
        self._tables = tables.Reader(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        add_last_words(error, self.programs)
        for program in self.programs:
            program.close()
        self._stack.close()
        self._tables.close()

    def rows(self, statement: str) -> list[tables.Row]:
        """What a SELECT finds, past the program; not to be called inside an event loop."""
        return self._tables.read(statement)


class BlueprintStand(ProgramStand, ABC):
    """A stand; `start()` runs `carillon serve` with settings of its own and the launch contract's environment.

    `name` is the settings' file, and of which `tests/support/NAME_mutant.py` mutants are.
    """

    def __init__(self, folder: Path, url: str, name: str, settings: str, environment: dict[str, str]) -> None:
        super().__init__(folder, url)
        self._name = name
        self._environment = environment
        self._config = folder / f"{name}.toml"
        self._config.write_text(settings)

    @abstractmethod
    def contract(self) -> dict[str, str]:
        """What the launch contract names."""

    def environment(self, **changes: str) -> dict[str, str]:
        """What processes are told; an empty value leaves a variable out."""
        given = {"CARILLON_HTTP__PORT": "0", "CARILLON_LEDGER__ALLOW_UNSAFE": "true", "DATABASE_URL": self.url}
        asked = given | self.contract() | self._environment | changes
        return {name: value for name, value in asked.items() if value}

    def command(self, name: str, *arguments: str, mutant: str | None = None, **environment: str) -> Program:
        """Any command with the stand's settings; a mutant has the guard of that name switched off."""
        module = {"PYTHONPATH": str(ROOT)} if mutant else {}
        return Program(
            *(name, "--config", str(self._config), *arguments),
            env=self.environment(**environment) | module,
            cwd=self.folder,
            command=[sys.executable, "-m", f"tests.support.{self._name}_mutant", mutant] if mutant else None,
        )

    def launch(self, *arguments: str, mutant: str | None = None, **environment: str) -> Program:
        """A process that may never become ready."""
        program = self.command("serve", *arguments, mutant=mutant, **environment)
        self.programs.append(program)
        return program

    def start(self, *arguments: str, mutant: str | None = None, **environment: str) -> Program:
        """A process that is ready."""
        program = self.launch(*arguments, mutant=mutant, **environment)
        program.wait_ready()
        return program


def database(request: pytest.FixtureRequest, folder: Path, *, tables: bool = True) -> Iterator[str]:
    """An empty database on the engine the fixture's parameter names, PostgreSQL without one; or one without tables."""
    if getattr(request, "param", "postgres") == "sqlite":
        yield f"sqlite:///{folder / 'ledger.db'}"
        return
    if not tables:
        yield request.getfixturevalue("postgres_dsn")
        return
    databases: Databases = request.getfixturevalue("databases")
    dsn, give_back = databases.take()
    yield str(dsn)
    give_back()
