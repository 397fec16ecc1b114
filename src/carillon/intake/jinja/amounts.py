"""Amounts of money written together after a render, in place of a call from the engine to Python for each of them.

The engine shows value and currency between marks, and the amounts are put there afterwards. Whatever stands between the
marks and cannot be written is left to the filter `money`, which knows what to say about it.
"""

import hashlib
import html
import secrets
from collections.abc import Sequence

from babel.numbers import UnknownCurrencyError

from carillon.domain.notifications import MarkedSource
from carillon.intake.jinja.formats import Unformattable, amount_writer
from carillon.intake.jinja.scan import Piece, SourceToken, Tag

_BETWEEN = "\n"
"""Between a value and its currency: no amount that can be written holds it."""
_CAPTURING = frozenset({"recursive", "super", "caller", "self"})
"""Words with which a template gets what another piece of it has written, marks included."""
_SECRET = secrets.token_bytes(32)
"""No value holds a mark, because nobody can guess it."""
_MONEY = ("|", "money", "(")


class AmountMarks:
    """The source of a part in the making, with marks in place of the filter; not for a part that can grow.

    What grows may take up what it has written, in a macro or a block with a filter.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        said = {token.text for piece in pieces if isinstance(piece, Tag) for token in piece.tokens}
        self._fits = said.isdisjoint(_CAPTURING)
        self._out: list[str] = []
        """An empty text is a mark."""

    def add(self, piece: Piece, text: str, *, free: bool) -> None:
        """The next piece, which the engine gets as `text`; `free` where any value may stand."""
        shown = _shown(piece) if free and isinstance(piece, Tag) else None
        self._out += ["", shown, ""] if shown else [text] if text else []

    def source(self, name: str) -> MarkedSource | None:
        """The source whose plain name is given; None if it shows no amounts that can be written together."""
        if not self._fits or "" not in self._out:
            return None
        mark = f"\x01{hashlib.blake2b(name.encode(), key=_SECRET, digest_size=8).hexdigest()}\x01"
        return MarkedSource(source="".join(text or mark for text in self._out), name=f"{mark}.{name}", mark=mark)


def _shown(tag: Tag) -> str | None:
    """`{{ item.price|money("EUR") }}` without the filter; None for any other tag."""
    names = [token.text for token in tag.tokens]
    if tag.kind != "say" or "money" not in names or names[-1] != ")" or {tag.text[2], tag.text[-3]} & {"-", "+"}:
        return None
    at = names.index("money") - 1
    value, currency = tag.tokens[:at], tag.tokens[at + len(_MONEY) : -1]
    if tuple(names[at : at + len(_MONEY)]) != _MONEY or not _is_path(value):
        return None
    if len(currency) == 1 and currency[0].kind == "string" and currency[0].text[1:-1].isalpha():
        said = currency[0].text[1:-1]
    elif _is_path(currency):
        said = f"{{{{ {_joined(currency)} }}}}"
    else:
        return None
    return f"{{{{ {_joined(value)} }}}}{_BETWEEN}{said}"


def _is_path(tokens: Sequence[SourceToken]) -> bool:
    """`item.price`: names with dots between them."""
    names, dots = tokens[::2], tokens[1::2]
    return len(names) == len(dots) + 1 and all(one.kind == "name" for one in names) and {d.text for d in dots} <= {"."}


def _joined(tokens: Sequence[SourceToken]) -> str:
    return "".join(token.text for token in tokens)


def with_amounts(text: str, mark: str, tag: str, *, escapes: bool) -> str:
    """The rendered text with its amounts, for a locale; raises Unformattable if the filter has to decide about one."""
    pieces = text.split(mark)
    if len(pieces) == 1:
        return text
    shown = pieces[1::2]
    currency = shown[0].partition(_BETWEEN)[2]
    lines = f"{_BETWEEN.join(shown)}{_BETWEEN}".replace(f"{_BETWEEN}{currency}{_BETWEEN}", "\n")[:-1]
    try:
        if lines.count("\n") == len(shown) - 1:
            written = amount_writer(tag, currency).many(lines)
        else:
            each = (piece.partition(_BETWEEN) for piece in shown)
            written = [amount_writer(tag, currency).one(amount) for amount, _, currency in each]
    except UnknownCurrencyError:
        raise Unformattable("not a currency") from None
    # No symbol of today's tables needs it, and tomorrow's are not ours.
    pieces[1::2] = html.escape("\n".join(written)).split("\n") if escapes else written
    return "".join(pieces)
