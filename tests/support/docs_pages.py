"""The documentation as its readers meet it: pages, fenced blocks, commands, links, headings, tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.sources import ROOT

# Pages that another suite runs, or that hold decisions and not instructions.
ELSEWHERE = ("docs/how-to/add-a-provider.md",)

_FENCE = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"(?:#|<!--) (?P<name>[\w./-]+\.\w+)(?: -->)?\n")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block; `file` is what its first line calls it."""

    kind: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        named = _FILE_NAME.match(self.text)
        return named["name"] if named else None


@dataclass(frozen=True)
class Step:
    """One command of a console block and the output printed under it."""

    command: str
    output: str


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found["kind"], found["text"], text.count("\n", 0, found.start()) + 1) for found in _FENCE.finditer(text)
    ]


def steps(block: Block) -> list[Step]:
    """A line after `$ ` is a command and goes on while it ends in a backslash or an open quote; the rest is output."""
    found: list[Step] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Step(line.removeprefix("$ "), ""))
        elif not found:
            raise ValueError(f"line {block.line}: a console block begins with a command")
        elif not found[-1].output and _goes_on(found[-1].command):
            found[-1] = Step(f"{found[-1].command}\n{line}", "")
        else:
            found[-1] = Step(found[-1].command, f"{found[-1].output}{line}\n")
    return found


def _goes_on(command: str) -> bool:
    return command.endswith("\\") or command.count("'") % 2 == 1


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> Iterator[str]:
    for found in _LINK.finditer(prose(page)):
        if not found["target"].startswith(("http://", "https://")):
            yield found["target"]


def anchors(page: Path) -> set[str]:
    headings = (found["text"] for found in _HEADING.finditer(prose(page)))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(page: Path, heading: str | None = None) -> list[list[str]]:
    """The cells of every table row, of the whole page or under one heading; head lines are left out."""
    text = prose(page)
    if heading is not None:
        text = re.split(rf"^#+ {re.escape(heading)}$", text, maxsplit=1, flags=re.MULTILINE)[1]
        text = re.split(r"^#", text, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    ruled = {at for at, line in enumerate(lines) if set(line) <= set("|- ")}
    kept = (line for at, line in enumerate(lines) if at not in ruled and at + 1 not in ruled)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


def word(cell: str) -> str:
    """What stands in a cell's first pair of backticks."""
    found = re.match(r"`([^`]+)`", cell)
    return found[1] if found else cell
