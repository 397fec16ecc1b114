"""Text messages as a carrier counts them: the alphabet, the parts, and a spelling that fits the cheaper alphabet."""

import unicodedata
from typing import Literal

import msgspec

_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿"
    "abcdefghijklmnopqrstuvwxyzäöñüà"
)
"""The basic table of GSM 03.38; each character is one septet."""
_EXTENSION = frozenset("\f^{}\\[~]|€")
"""The extension table: an escape and one septet, which a carrier never splits between two parts."""
_GSM7_ALONE, _GSM7_PART = 160, 153
_UCS2_ALONE, _UCS2_PART = 70, 67
_LAST_OF_ONE_UNIT = "\uffff"
_SPELLINGS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4`", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033«»", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u202f\t", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
        **dict.fromkeys("•·\u2022", "-"),
        "…": "...",
        "\u2039": "<",
        "\u203a": ">",
        "ł": "l",
        "Ł": "L",
        "đ": "d",
        "Đ": "D",
        "\u0131": "i",
        "œ": "oe",
        "Œ": "OE",
        "þ": "th",
        "Þ": "Th",
        "ð": "d",
        "Ð": "D",
        "ħ": "h",
        "Ħ": "H",
        "ẞ": "SS",
    }
)


class Segments(msgspec.Struct, frozen=True, rename="camel"):
    """What a text message costs: a carrier sends it in parts, and charges each part."""

    encoding: Literal["GSM-7", "UCS-2"]
    units: int
    """Septets of GSM-7 or 16-bit units of UCS-2; an emoji is two units, a `€` in GSM-7 two septets."""
    segments: int
    """The number of parts; an empty text is one part."""
    per_segment: int
    """How many units one part holds: a text in several parts gives some of each to the header that joins them."""


def segments_of(text: str) -> Segments:
    """Count the parts of a text message as a carrier does."""
    if all(char in _BASIC or char in _EXTENSION for char in text):
        return _counted("GSM-7", [2 if char in _EXTENSION else 1 for char in text], _GSM7_ALONE, _GSM7_PART)
    return _counted("UCS-2", [1 if char <= _LAST_OF_ONE_UNIT else 2 for char in text], _UCS2_ALONE, _UCS2_PART)


def _counted(encoding: Literal["GSM-7", "UCS-2"], sizes: list[int], alone: int, part: int) -> Segments:
    units = sum(sizes)
    if units <= alone:
        return Segments(encoding, units, 1, alone)
    parts, used = 1, 0
    for size in sizes:
        # A pair stays together: where only one unit is left, the part ends short.
        if used + size > part:
            parts, used = parts + 1, 0
        used += size
    return Segments(encoding, units, parts, part)


def transliterate(text: str) -> str:
    """The text in letters of GSM-7, if all of it can be written so; otherwise the text as it is.

    A text that stays in UCS-2 keeps its accents: without them it would read worse and cost the same.
    """
    if segments_of(text).encoding == "GSM-7":
        return text
    spelled = "".join(_spelled(char) for char in unicodedata.normalize("NFC", text))
    return spelled if segments_of(spelled).encoding == "GSM-7" else text


def _spelled(char: str) -> str:
    if char in _BASIC or char in _EXTENSION:
        return char
    plain = char.translate(_SPELLINGS)
    if plain != char:
        return plain
    return "".join(part for part in unicodedata.normalize("NFKD", char) if not unicodedata.combining(part))
