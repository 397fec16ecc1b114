"""Reads the package's sources once and says where they break the rules of the house."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "carillon"
FOLDER_FILES = 40
FILE_LINES = 400
EARNED_LINES = 60
EARNED_IMPORTERS = 2

# A program finds these files by their names, so no import statement shows who uses them.
FOUND_BY_NAME = (
    re.compile(r"carillon\.providers\.\w+(\.send|\.receipts)?"),
    re.compile(r"carillon\.blueprints\.\w+\.\w*wire"),
    re.compile(r"carillon\.client\.(fastapi|sqlalchemy|django\..+)"),  # users import these, or Django does
    re.compile(r"carillon\.(pytest_plugin|testing|embedded)"),
)


@dataclass(frozen=True)
class Module:
    """One Python file of the package."""

    name: str
    place: str
    lines: int
    tree: ast.Module
    is_package: bool

    @property
    def folder(self) -> str:
        """The folder that holds the file."""
        return self.place.rpartition("/")[0]


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement below a node, without a look into expressions, which are nine tenths of a tree."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, field, ()):
            if isinstance(node, ast.stmt):
                yield node
            yield from statements(node)


def parse_file(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse(path.read_text(), filename=str(path))


def read_modules(
    root: Path, folder: str = "src", package: str = PACKAGE, parse: Callable[[Path], ast.Module] = parse_file
) -> dict[str, Module]:
    """Every module below `root/folder/package` by its dotted name; generated code is left out."""
    found = {}
    for path in sorted((root / folder / package).rglob("*.py")):
        parts = path.relative_to(root / folder).with_suffix("").parts
        if parts[-1].endswith("_generated"):
            continue
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        lines = len(path.read_text().splitlines())
        found[name] = Module(name, str(path.relative_to(root)), lines, parse(path), is_package)
    return found


def imported(module: Module, known: Iterable[str]) -> set[str]:
    """Every module of `known` that `module` names in an import, inside functions and for types only included.

    `from package import name` counts as the module `package.name` where there is one, else as the package. A string
    that is exactly a module's dotted name counts too: that is how a part is imported late.
    """
    names = set(known)
    targets: set[str] = set()
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=aliases):
                targets |= {alias.name for alias in aliases} & names
            case ast.ImportFrom(module=origin, names=aliases, level=level):
                start = _absolute(module, origin, level)
                for alias in aliases:
                    inner = f"{start}.{alias.name}"
                    targets |= {inner if inner in names else start} & names
            case ast.Constant(value=str() as text) if text in names and "." in text:
                targets.add(text)
    return targets - {module.name}


def _absolute(module: Module, origin: str | None, level: int) -> str:
    if not level:
        return origin or ""
    above = module.name.split(".")
    kept = above[: len(above) - level + (1 if module.is_package else 0)]
    return ".".join([*kept, *([origin] if origin else [])])


def import_graph(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Which module imports which."""
    return {name: imported(module, modules) for name, module in modules.items()}


def knots(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules in which each imports every other, directly or through others."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        path.append(name)
        for target in sorted(graph.get(name, ())):
            if target not in numbers:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in path:
                lowest[name] = min(lowest[name], numbers[target])
        if lowest[name] == numbers[name]:
            start = path.index(name)
            found.append(sorted(path[start:]))
            del path[start:]

    for name in sorted(graph):
        if name not in numbers:
            visit(name)
    return sorted(group for group in found if len(group) > 1)


def crowded_folders(modules: Mapping[str, Module]) -> dict[str, int]:
    """Folders with more Python files than one can hold in mind."""
    return {folder: count for folder, count in folder_sizes(modules).items() if count > FOLDER_FILES}


def folder_sizes(modules: Mapping[str, Module]) -> dict[str, int]:
    """How many Python files each folder holds."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for module in modules.values():
        sizes[module.folder] += 1
    return dict(sizes)


def long_files(modules: Mapping[str, Module]) -> list[str]:
    """Files over the most lines that a file may have."""
    return sorted(module.place for module in modules.values() if module.lines > FILE_LINES)


def fragments(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """Short files that at most one other module imports, each with its importers."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, targets in import_graph(modules).items():
        for target in targets:
            importers[target].add(name)
    return {
        module.place: sorted(importers[name])
        for name, module in modules.items()
        if module.lines < EARNED_LINES
        and len(importers[name]) < EARNED_IMPORTERS
        and not module.is_package
        and not name.endswith(".__main__")
        and not any(pattern.fullmatch(name) for pattern in FOUND_BY_NAME)
    }


def classes(modules: Mapping[str, Module]) -> Iterator[tuple[Module, ast.ClassDef]]:
    """Every class at the top of a module."""
    for module in modules.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                yield module, node


def names_used_twice(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """Class names that stand for more than one thing, each with its places."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module, node in classes(modules):
        if not node.name.startswith("_"):
            places[node.name].append(f"{module.place}:{node.lineno}")
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}
