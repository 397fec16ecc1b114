"""Names say what a thing is, and files know nothing of the machine they were written on."""

import ast
import re

from tests.support.sources import code_files, place, repository_files, syntax_trees

VAGUE = {"manager", "service", "helper", "util", "common", "base", "core"}
VAGUE |= {f"{word}s" for word in VAGUE}

# Spelt in pieces, so that this file passes its own test.
_FORBIDDEN = {
    "a machine's path": re.compile(r"(?<![\w.*-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", r"home/\w+"]) + ")/"),
    "a registry's host": re.compile(
        "|".join(["py" + r"pi\.org", "python" + r"hosted\.org", "npm" + r"js\.(?:org|com)"])
    ),
    "an open end": re.compile(r"\b(?:" + "TO" + "DO|FIX" + r"ME)\b"),
}


def is_vague(words: list[str]) -> bool:
    # A service account or a core temperature is a thing; an account service or a base provider is not.
    return words[-1].lower() in VAGUE or words[0].lower() == "base"


def test_no_vague_file_names() -> None:
    paths = code_files(".py", ".sql", ".lua", ".toml")
    assert not [place(path) for path in paths if is_vague(path.stem.strip("_").split("_"))]


def test_no_vague_class_names() -> None:
    classes = (
        (f"{name}:{node.lineno}", node.name)
        for name, tree in syntax_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert not [(where, name) for where, name in classes if is_vague(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name))]


def test_no_file_names_a_machine_or_leaves_an_open_end() -> None:
    found = []
    for path in repository_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            found += [f"{place(path, number)}: {what}" for what, pattern in _FORBIDDEN.items() if pattern.search(line)]
    assert not found
