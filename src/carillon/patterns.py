r"""Patterns in words: a caller is told "1 to 64 letters, digits and . _ -", not the regular expression."""

import ast
import re

# Only at the beginning: elsewhere a sentence may quote what the caller sent.
_SAID = re.compile(r"Expected `str` matching regex (?P<pattern>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
_KIND = r"\[(?:\\.|[^\]\\])+\]|\\w"
_WHOLE = re.compile(
    rf"(?:\^|\\A)(?:(?P<first>{_KIND})(?=[\[\\]))?(?P<kind>{_KIND})(?:\{{(?P<least>\d+),(?P<most>\d+)\}}|[+*])?(?:\\Z|\$)"
)
_STEP = re.compile(r"[^\\]-[^\\]|\\?.")

_KINDS = {
    r"[^\x00-\x1f\x7f]": "characters without control characters",
    r"[^\x00-\x20\x7f]": "characters without spaces and control characters",
    r"[\x21-\x7e]": "ASCII characters without spaces",
    r"\w": "letters, digits and _",
}
_RANGES = {"a-z": "small letters", "A-Z": "capital letters", "0-9": "digits"}
_SHAPES = {
    r"^https?://": "a URL that begins with http:// or https://",
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]": "a date and time such as 2026-01-31T12:00:00Z",
    r"^[A-Za-z]{2,3}(-": "a locale such as en-US",
    r"^[a-z]{2}(-": "a locale such as en or en-US",
    r"^[A-Za-z0-9][A-Za-z0-9!": "a content type such as application/pdf",
    r"^([01][0-9]|2[0-3]):": "a time of day such as 22:00",
    r"^(true|false)": "true or false",
    r"^(attempts|message)": "attempts, message, or both with a comma between them",
    r"^(https?://[^\s/?#]+|/)": "a URL that begins with http:// or https://, or a path that begins with /",
    r"^(?=.*\S)": "a text of at most 1,000 characters that says something",
    r"\A[0-9]{1,12}(\.": "an amount such as 12.50",
    r"^[^\x00-\x1f\x7f/": 'a file name of 1 to 200 characters without control characters and / \\ " < > : | ? *',
}
"""By its beginning: what a longer pattern describes."""


def in_words(said: str) -> str:
    """A sentence of msgspec in which a pattern, where there is one, is told in words."""
    found = _SAID.match(said)
    words = None if found is None else words_of(ast.literal_eval(found["pattern"]))
    return said if found is None or words is None else f"Expected {words}{said[found.end() :]}"


def words_of(pattern: str) -> str | None:
    """What a pattern asks for; None for one that nobody has put into words."""
    shape = next((words for beginning, words in _SHAPES.items() if pattern.startswith(beginning)), None)
    whole = _WHOLE.fullmatch(pattern)
    if shape is not None or whole is None:
        return shape
    kind, first = _kind(whole["kind"]), _kind(whole["first"]) if whole["first"] else None
    if kind is None or (whole["first"] and first is None):
        return None
    if whole["most"] is None:
        return kind
    more = 1 if first else 0
    least, most = int(whole["least"]) + more, int(whole["most"]) + more
    counted = f"{least} to {most:,} {kind}"
    return f"{counted}; the first is one of {first}" if first and first != kind else counted


def _kind(text: str) -> str | None:
    """The characters of a class such as `[a-z0-9_-]`."""
    if text in _KINDS:
        return _KINDS[text]
    if text.startswith("[^"):
        return None
    steps = _STEP.findall(text[1:-1])
    named = [_RANGES[step] for step in steps if step in _RANGES]
    if "small letters" in named and "capital letters" in named:
        named = ["letters", *(name for name in named if not name.endswith("letters"))]
    if any("-" in step and step not in _RANGES and len(step) > 1 for step in steps):
        return None
    marks = " ".join(step[-1] for step in steps if step not in _RANGES)
    words = [*named, *([marks] if marks else [])]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
