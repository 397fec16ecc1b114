"""Which links in HTML run a script: no value may write one."""

import html
import re
from collections.abc import Iterator

from carillon.domain.errors import BadTemplate, Place

# Browsers and mail programs leave these out of a link before they read its scheme.
_SKIPPED = r"[\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202f\ufeff]*+"
_SCHEMES = "|".join(_SKIPPED.join(scheme) for scheme in ("javascript", "vbscript", "livescript", "data"))
# A picture inside a link's text runs nothing.
_PICTURE = r"(?<=data:)image/(?:png|jpeg|jpg|gif|webp)[;,]"
# The first character has no case: so the search skips to it, which halves the time.
_WRITTEN = rf"[=(]\s*+(?i:(?:[\"']|&quot;|&\#x27;)?(?P<url>{_SKIPPED}(?:{_SCHEMES}){_SKIPPED}:))"
_SCRIPTED = re.compile(rf"{_WRITTEN}(?!(?i:{_PICTURE}))")
"""Where the value of an attribute, or of `url(…)`, begins with a scheme that runs what follows."""
_UNSAFE = re.compile(_WRITTEN)
"""The same, pictures among them."""
_LINK_NAME = re.compile(
    r"(?<![\w-])(?:href|src|srcset|action|formaction|background|poster|cite|data|codebase|classid|longdesc|usemap|profile"
    r"|manifest|dynsrc|lowsrc|ping|url)\s*\Z",
    re.IGNORECASE,
)
_LONGEST_NAME = 64


def scripted(rich: str) -> Iterator[re.Match[str]]:
    """The links whose scheme runs what follows it; `url` is the scheme's group."""
    return (found for found in _SCRIPTED.finditer(rich) if _is_link(rich, found.start()))


def _is_link(rich: str, at: int) -> bool:
    return _LINK_NAME.search(rich[max(0, at - _LONGEST_NAME) : at]) is not None


def unsafe_link(rich: str) -> str | None:
    """The scheme of the first link that begins with javascript:, data: or the like, no matter who wrote it."""
    found = _unsafe(rich)
    return None if found is None else found.group("url").strip()


def _unsafe(rich: str) -> re.Match[str] | None:
    return next((one for one in _UNSAFE.finditer(rich) if _is_link(rich, one.start())), None)


def refuse_scripts(literal: str, source: str, place: Place) -> None:
    """Raise BadTemplate for a jinja template whose own text writes such a link; `place` is where its source begins.

    `literal` is its text with that of its layout and partials.
    """
    # A mail program reads `&#106;` as a letter.
    scheme = unsafe_link(literal) or unsafe_link(html.unescape(literal))
    if scheme is None:
        return
    own = _unsafe(source)
    at = 0 if own is None else own.start("url")
    there = place._replace(line=source.count("\n", 0, at) + 1, column=at - source.rfind("\n", 0, at))
    raise BadTemplate(f"a link begins with {scheme} but links begin with https:, mailto: or the like", place=there)
