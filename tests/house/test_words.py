"""Names say what a thing is, and files know nothing of the machine they were written on."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from scripts.house_rules import Module, statements
from scripts.house_words import GLOSSARY, NAMES, glossary, words_in_names, words_in_prose, words_on_pages
from tests.support.sources import ROOT, code_files, package_modules, place, repository_files, syntax_trees, text_of

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
        for node in statements(tree)
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
        # None of them goes over the end of a line, so most files are done with three searches.
        for what, pattern in _FORBIDDEN.items():
            found += [f"{place(path, text.count(chr(10), 0, at.start()) + 1)}: {what}" for at in pattern.finditer(text)]
    assert not found


NAMES_ON_PURPOSE: dict[str, str] = {}
"""Names that keep a given-up word, each with its reason."""


def prose_files() -> Iterator[Path]:
    """What people read: the package's own files, the tests, the documentation and the pages at the top."""
    kinds = (".py", ".sql", ".lua", ".toml", ".yaml", ".md", ".js", ".html")
    for path in code_files(*kinds, folders=("src", "tests", "docs")):
        # A migration that ran somewhere stays as it is, and a glossary and this file name what is given up.
        if "migrations" not in path.parts and path not in {ROOT / GLOSSARY, Path(__file__).resolve()}:
            yield path
    yield from top_pages()


def top_pages() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml"))
    yield from (path for path in (ROOT / "deploy").rglob("*") if path.is_file())


def pages_for_readers() -> Iterator[Path]:
    """What users and operators read: the documentation, the pages at the top, the files in deploy and the console."""
    yield from (path for path in code_files(".md", folders=("docs", "src")) if path != ROOT / GLOSSARY)
    yield from code_files(".js", ".html", folders=("src",))
    yield from top_pages()


def given_up_prose() -> set[str]:
    return {f"{place(path)} {word}" for path in prose_files() for word in words_in_prose(text_of(path))}


def given_up_names() -> set[str]:
    unwanted = {word: known for known, (_, words) in glossary(text_of(ROOT / GLOSSARY)).items() for word in words}
    return {
        f"{module.place} {name}"
        for module in package_modules().values()
        for name in words_in_names(module, NAMES | unwanted)
    } - NAMES_ON_PURPOSE.keys()


def test_given_up_words_do_not_come_back_in_prose() -> None:
    assert not given_up_prose()


def test_pages_use_words_that_their_readers_know() -> None:
    assert not {f"{place(path)} {word}" for path in pages_for_readers() for word in words_on_pages(text_of(path))}


def test_given_up_words_do_not_come_back_in_names() -> None:
    assert not given_up_names()


def test_control_given_up_words_are_seen() -> None:
    assert words_in_prose("Whoever reads document 003.") == {"whoever", "a blueprint's number"}
    assert words_in_prose("However long the documents are.") == set()
    assert words_on_pages("Mended aloud by the heir; the document names a queue that is worked off.") == {
        "mend",
        "aloud",
        "heir",
        "the document",
        "work off",
    }
    assert words_on_pages("Amendments inherit an OpenAPI document; the work is offered at the stand.") == set()
    tree = ast.parse("class SendsNow:\n    def desk_of(self): ...\ndef handsome(): ...\nclass HTTPDesk: ...")
    module = Module("carillon.tempo", "src/carillon/tempo.py", 4, tree, is_package=False)
    words = {"sends_now": "synchronous", "desk": "it", "hands": "claim on accept", "tempo": "lane polling"}
    assert set(words_in_names(module, words)) == {"SendsNow", "desk_of", "HTTPDesk", "tempo"}


def test_the_glossary_says_one_sentence_a_word() -> None:
    words = glossary(text_of(ROOT / GLOSSARY))
    assert len(words) >= 25
    assert not [word for word, (meaning, _) in words.items() if not re.fullmatch(r"[A-Z][^.]*\.", meaning)]
    assert not {known for known in words for _, unwanted in words.values() if known in unwanted}


def test_the_words_of_the_glossary_are_the_words_of_the_code() -> None:
    """A word that the package never says describes a house that is gone."""
    said = "\n".join(text_of(path).lower() for path in code_files(".py", ".sql", folders=("src",)))
    gone = [
        word
        for word in glossary(text_of(ROOT / GLOSSARY))
        if not re.search(rf"(?<![a-z]){re.sub(' ', '[ _-]', word)}", said)
    ]
    assert not gone


def test_control_the_glossary_is_read() -> None:
    rows = "| word | is | not |\n| --- | --- | --- |\n| **lane** | A queue. | line, row |\n| **door** | A way in. | |\n"
    assert glossary(rows) == {"lane": ("A queue.", ["line", "row"]), "door": ("A way in.", [])}
