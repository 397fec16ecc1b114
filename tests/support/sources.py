"""The repository's own files, each read and parsed once, for the house rules."""

import ast
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from scripts.house_rules import Module, read_modules

ROOT = Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("src", "tests", "bench", "scripts")
# What a compiler wrote keeps no house rules.
GENERATED = "_generated.py"


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


@cache
def package_modules() -> Mapping[str, Module]:
    """Every module of the package by its dotted name."""
    return read_modules(ROOT, parse=tree_of)


@cache
def modules_of_tests() -> Mapping[str, Module]:
    """Every module below tests by its dotted name."""
    return read_modules(ROOT, ".", "tests", parse=tree_of)


def code_files(*suffixes: str, folders: tuple[str, ...] = CODE_FOLDERS) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            ours = not {"__pycache__", "node_modules"} & set(path.parts) and not path.name.endswith(GENERATED)
            if path.suffix in suffixes and ours:
                yield path


def syntax_trees(folders: tuple[str, ...] = CODE_FOLDERS) -> Iterator[tuple[str, ast.Module]]:
    for path in code_files(".py", folders=folders):
        yield place(path), tree_of(path)


def repository_files() -> Iterator[Path]:
    """Everything tracked, and what would be if it were added now."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            yield ROOT / name


def place(path: Path, line: int | None = None) -> str:
    where = str(path.relative_to(ROOT))
    return where if line is None else f"{where}:{line}"
