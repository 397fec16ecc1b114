"""Prints the figures of the house as a table: `python -m scripts.house_figures [a checkout to compare with]`."""

import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from scripts.house_protocols import lonely_protocols
from scripts.house_rules import Module, folder_sizes, fragments, import_graph, knots, names_used_twice, read_modules

ROOT = Path(__file__).resolve().parent.parent
_COUNTED = re.compile(r"(\d+) pairs of places .*?\((\d+) by shape alone")


def figures(root: Path) -> dict[str, str]:
    """Every figure by its name."""
    modules = read_modules(root)
    lines = sorted(module.lines for module in modules.values())
    crowded, files = max(folder_sizes(modules).items(), key=lambda pair: pair[1])
    return {
        "modules": str(len(modules)),
        "lines a module, median": f"{statistics.median(lines):g}",
        "lines a module, 90th of a hundred": str(lines[len(lines) * 9 // 10]),
        "lines a module, most": str(lines[-1]),
        "largest folder": f"{files} ({crowded.removeprefix('src/carillon/')})",
        "files of under 60 lines with one importer": str(len(fragments(modules))),
        "import knots, types and functions counted": _knots(modules),
        "class names used twice": str(len(names_used_twice(modules))),
        "protocols with one implementor": str(len(lonely_protocols(modules, read_modules(root, ".", "tests")))),
        "literal duplicates in src": _duplicates(root),
    }


def _knots(modules: Mapping[str, Module]) -> str:
    found = knots(import_graph(modules))
    return f"{len(found)} ({sum(map(len, found))} modules)" if found else "0"


def _duplicates(root: Path) -> str:
    """Pairs of places with six or more identical lines, as the tool `duplicates` counts them where it is installed."""
    tool = shutil.which("duplicates")
    if tool is None:
        return "not counted"
    ran = subprocess.run([tool, "--repo", "src", "--most", "1"], cwd=root, capture_output=True, text=True, check=True)  # noqa: S603 - found on PATH, told nothing from outside
    found = _COUNTED.search(ran.stdout)
    return str(int(found[1]) - int(found[2])) if found else "0"


def table(columns: Mapping[str, Mapping[str, str]]) -> str:
    """A Markdown table with a column for each checkout."""
    rows = [["figure", *columns], ["---"] * (len(columns) + 1)]
    names = next(iter(columns.values()))
    rows += [[name, *(column[name] for column in columns.values())] for name in names]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    other = {"before": figures(Path(sys.argv[1]).resolve())} if len(sys.argv) > 1 else {}
    print(table(other | {"now": figures(ROOT)}))
