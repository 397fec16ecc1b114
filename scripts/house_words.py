"""Finds words that the house gave up: in prose by pattern, in names by the glossary's list of words not to use."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.house_rules import Module, statements

GLOSSARY = Path("docs/reference/glossary.md")
PROSE = {
    "whoever": re.compile(r"\bwho(?:so)?ever\b", re.IGNORECASE),
    "told of": re.compile(r"\b(?:is|was|were|are) told of\b", re.IGNORECASE),
    "foresight": re.compile(r"\bforesight\b", re.IGNORECASE),
    "partings": re.compile(r"\bpartings\b", re.IGNORECASE),
    "tempo": re.compile(r"\btempo\b", re.IGNORECASE),
    "a blueprint's number": re.compile(r"\bdocuments? 00[0-9]", re.IGNORECASE),
}
ON_PAGES = {
    "mend": re.compile(r"\bmend(?:s|ed|ing)?\b", re.IGNORECASE),
    "oversleep": re.compile(r"\boversle(?:ep|pt)", re.IGNORECASE),
    "heir": re.compile(r"\bheirs?\b(?!`)", re.IGNORECASE),
    "seldom": re.compile(r"\bseldom\b", re.IGNORECASE),
    "aloud": re.compile(r"\baloud\b", re.IGNORECASE),
    "in hand": re.compile(r"\bin hand\b", re.IGNORECASE),
    "work off": re.compile(r"\bwork(?:s|ed)? off\b", re.IGNORECASE),
    "in bites": re.compile(r"\bbites?\b", re.IGNORECASE),
    "hear of": re.compile(r"\b(?:hears?|heard) of\b", re.IGNORECASE),
    "stands in": re.compile(r"\bstands? in (?:a|the|its|every)\b", re.IGNORECASE),
    "is no such thing": re.compile(
        r"(?<!here )\bis no (?:name|time|number|duration|user|provider|key|queue|fault|failure)\b"
    ),
    "the document": re.compile(
        r"\bthe documents?(?:'s?)? (?:names?|has|asks?|says?|knows|own|bytes|keys|table)\b", re.IGNORECASE
    ),
    "who acts is missing": re.compile(r"\bwho (?:needs|asks|wants|comes) (?:the|a|it|one)\b", re.IGNORECASE),
}
"""Words that pages for readers do not use: the documentation, the files in deploy, the console."""
NAMES = {
    "amend": "receipt effect",
    "carrying": "in flight",
    "desk": "the name of the thing itself",
    "foresight": "lookup",
    "hands": "claim on accept",
    "leaving": "shutdown",
    "office": "the name of the thing itself",
    "partings": "delivery end",
    "tempo": "lane polling",
}
"""Words that no module, class or function has in its name, each with the word that stands for it now."""
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+")


def words_in_prose(text: str) -> set[str]:
    """Which given-up words a text uses."""
    return {word for word, pattern in PROSE.items() if pattern.search(text)}


def words_on_pages(text: str) -> set[str]:
    """Which words that its readers stumble over a page uses."""
    return {word for word, pattern in ON_PAGES.items() if pattern.search(text)}


def names_of(module: Module) -> Iterator[str]:
    """The module's own name and those of its classes, functions and methods."""
    yield module.name.rpartition(".")[2]
    for node in statements(module.tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def words_in_names(module: Module, given_up: Mapping[str, str]) -> dict[str, str]:
    """Names in a module that hold a given-up word, each with what to say instead."""
    found = {}
    for name in names_of(module):
        parts = [part.lower() for part in _PARTS.findall(name)]
        together = f"_{'_'.join(parts)}_"
        for word, instead in given_up.items():
            if f"_{word}_" in together:
                found[name] = instead
    return found


def glossary(text: str) -> dict[str, tuple[str, list[str]]]:
    """Each word of the glossary: what it is, and the words not to use for it."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("**"):  # noqa: PLR2004 - word, meaning, not
            unwanted = [word.strip() for word in cells[2].split(",") if word.strip()]
            found[cells[0].strip("*")] = (cells[1], unwanted)
    return found
