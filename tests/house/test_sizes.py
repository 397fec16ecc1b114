"""Files and functions stay small enough to be read in one go."""

import ast

from scripts.house_rules import FILE_LINES, statements
from tests.support.sources import code_files, place, syntax_trees, text_of

FUNCTION_LINES = 40


def test_no_file_has_more_than_400_lines() -> None:
    lengths = {
        place(path): len(text_of(path).splitlines())
        for path in code_files(".py", ".sql", ".lua", ".css", ".js", ".mjs", ".html")
    }
    assert not {name: lines for name, lines in lengths.items() if lines > FILE_LINES}


def test_functions_stay_under_40_lines() -> None:
    long = [
        f"{name}:{node.lineno} {node.name} has {lines} lines"
        for name, tree in syntax_trees()
        for node in statements(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) >= FUNCTION_LINES
    ]
    assert not long


def test_modules_open_with_one_sentence() -> None:
    silent = []
    for name, tree in syntax_trees():
        first = (ast.get_docstring(tree) or "").splitlines()[:1]
        if not first or not first[0].endswith("."):
            silent.append(name)
    assert not silent
