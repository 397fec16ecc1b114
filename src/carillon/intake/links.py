"""Which links in HTML run a script: no value may write one."""

import html
import re
from collections.abc import Iterator

# Browsers and mail programs leave these out of a link before they read its scheme.
_SKIPPED = r"[\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\ufeff]*+"
_SCHEMES = "|".join(_SKIPPED.join(scheme) for scheme in ("javascript", "vbscript", "livescript", "data"))
# A picture inside a link's text runs nothing.
_PICTURE = r"(?<=data:)image/(?:png|jpeg|jpg|gif|webp)[;,]"
_LINK = rf"\s*+(?i:(?:[\"']|&quot;|&\#x27;)?(?P<url>{_SKIPPED}(?:{_SCHEMES}){_SKIPPED}:))"
_NO_PICTURE = rf"(?!(?i:{_PICTURE}))"
# The first character has no case: so the search skips to it, which halves the time.
_SCRIPTED = re.compile(rf"[=(]{_LINK}{_NO_PICTURE}")
"""Where the value of an attribute, or of `url(…)`, begins with a scheme that runs what follows."""
_UNSAFE = re.compile(rf"[=(]{_LINK}")
"""The same, pictures among them."""
# A comma or a semicolon begins the next link of a list.
_SCRIPTED_IN_LIST = re.compile(rf"[,;]{_LINK}{_NO_PICTURE}")
_UNSAFE_IN_LIST = re.compile(rf"[,;]{_LINK}")
_LINK_NAME = re.compile(
    r"(?:(?<![\w-])(?:href|src|srcset|imagesrcset|action|formaction|background|poster|cite|data|codebase|classid|longdesc"
    r"|usemap|profile|manifest|dynsrc|lowsrc|ping|url)|(?<=\s)(?:to|from|by|values|archive|icon))\s*[=(]\Z",
    re.IGNORECASE,
)
"""An attribute that holds a link or, in a picture of SVG, becomes one; and `url(…)` of a style."""
_LIST_NAME = re.compile(
    r"(?<![\w-])(?:(?:srcset|imagesrcset|archive|values)\s*=\s*(?:\"[^\"<>]*|'[^'<>]*|[^\s\"'<>]*)"
    r"|content\s*=\s*[\"']?\s*[\d.]*\s*[,;])\Z",
    re.IGNORECASE,
)
"""Inside an attribute that holds several links, or a number and a link: `<meta http-equiv="refresh">`."""
_ENCODED = re.compile(r"[=(](?=\s*+[\"']?(?P<url>[^\"'<>=(&]{0,80}+&(?:\#|colon;|Tab;|NewLine;)[^\"'<>]{0,200}+))")
"""A link with entities among its letters, which only trusted HTML can have."""
_ENTITIES = ("&#", "&colon;", "&Tab;", "&NewLine;")
_LISTS = ("srcset", "archive", "values", "content")
_LONGEST_NAME = 64
_LONGEST_LIST = 4096


def scripted(rich: str) -> Iterator[re.Match[str]]:
    """The links whose scheme runs what follows it; `url` is the scheme's group."""
    return _links(rich, _SCRIPTED, _SCRIPTED_IN_LIST)


def _links(rich: str, one: re.Pattern[str], listed: re.Pattern[str]) -> Iterator[re.Match[str]]:
    yield from (found for found in one.finditer(rich) if _is_link(rich, found.start()))
    lower = rich.lower()
    if any(name in lower for name in _LISTS):
        yield from (found for found in listed.finditer(rich) if _is_link(rich, found.start()))


def _is_link(rich: str, at: int) -> bool:
    """Whether the mark at this place begins a link."""
    if rich[at] in "=(":
        return _LINK_NAME.search(rich[max(0, at - _LONGEST_NAME) : at + 1]) is not None
    return _LIST_NAME.search(rich[max(0, at - _LONGEST_LIST) : at + 1]) is not None


def unsafe_link(rich: str) -> str | None:
    """The scheme of the first link that begins with javascript:, data: or the like, no matter who wrote it."""
    found = _unsafe(rich)
    if found is not None:
        return found["url"].strip()
    for one in _ENCODED.finditer(rich) if any(entity in rich for entity in _ENTITIES) else ():
        said = _UNSAFE.match(f"={html.unescape(one['url'])}")
        if said is not None and _is_link(rich, one.start()):
            return said["url"].strip()
    return None


def _unsafe(rich: str) -> re.Match[str] | None:
    return next(_links(rich, _UNSAFE, _UNSAFE_IN_LIST), None)


def scripts_in(literal: str) -> str | None:
    """The scheme of such a link in a template's own text, with that of its layout and partials."""
    # A mail program reads `&#106;` as a letter.
    return unsafe_link(literal) or unsafe_link(html.unescape(literal))


def unsafe_at(source: str) -> int:
    """Where a source begins such a link; 0 if entities hide it."""
    found = _unsafe(source)
    return 0 if found is None else found.start("url")
