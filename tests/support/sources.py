"""The repository's own files, for the house rules."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("src", "tests", "bench", "scripts")
# What a compiler wrote keeps no house rules.
GENERATED = ROOT / "src" / "carillon" / "blueprints" / "galaxy" / "fbs" / "notification"


def code_files(*suffixes: str, folders: tuple[str, ...] = CODE_FOLDERS) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts and GENERATED not in path.parents:
                yield path


def syntax_trees(folders: tuple[str, ...] = CODE_FOLDERS) -> Iterator[tuple[str, ast.Module]]:
    for path in code_files(".py", folders=folders):
        yield place(path), ast.parse(path.read_text(), filename=str(path))


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
