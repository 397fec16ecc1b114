"""Every exception descends from CarillonError, so one except clause catches all of ours and nothing else."""

import ast
import builtins

from scripts.house_rules import statements
from tests.support.sources import ROOT, syntax_trees

TREE_TOP = "CarillonError"


def class_parents() -> dict[str, tuple[str, list[str]]]:
    """Each class of the package: where it stands, and the bare names of its parents."""
    return {
        node.name: (
            f"{name}:{node.lineno}",
            [ast.unparse(parent).split("[")[0].split(".")[-1] for parent in node.bases],
        )
        for name, tree in syntax_trees(("src",))
        for node in statements(tree)
        if isinstance(node, ast.ClassDef)
    }


def ancestors(name: str, parents: dict[str, tuple[str, list[str]]]) -> set[str]:
    direct = parents.get(name, ("", []))[1]
    return set(direct).union(*(ancestors(parent, parents) for parent in direct if parent != name))


def is_exception(name: str) -> bool:
    builtin = getattr(builtins, name, None)
    if isinstance(builtin, type):
        return issubclass(builtin, BaseException)
    # A library's exception is known here only by its name.
    return name.endswith(("Error", "Exception"))


def test_every_exception_descends_from_carillon_error() -> None:
    if not (ROOT / "src" / "carillon" / "domain" / "errors.py").exists():
        return
    parents = class_parents()
    assert TREE_TOP in parents
    strays = []
    for name, (where, _) in parents.items():
        above = ancestors(name, parents)
        if name != TREE_TOP and TREE_TOP not in above and any(map(is_exception, above)):
            strays.append(f"{where} {name}")
    assert not strays


def raises_in_star(tree: ast.AST) -> list[int]:
    """Lines that raise inside `except*`: before 3.11.4, Debian 12's Python among them, a group comes out of it."""
    return [
        inner.lineno
        for node in statements(tree)
        if isinstance(node, ast.TryStar)
        for handler in node.handlers
        for inner in statements(handler)
        if isinstance(inner, ast.Raise)
    ]


def test_nothing_is_raised_inside_except_star() -> None:
    assert not [f"{name}:{line}" for name, tree in syntax_trees(("src",)) for line in raises_in_star(tree)]


def test_control_a_raise_inside_except_star_is_seen() -> None:
    assert raises_in_star(ast.parse("try:\n    pass\nexcept* ValueError as group:\n    raise group.exceptions[0]")) == [
        4
    ]
