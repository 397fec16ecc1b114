"""Translations: one catalogue in the PO format for each locale, and the text of a key in it."""

import gettext
import io
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from babel.messages.pofile import PoFileError, read_po

from carillon.domain.errors import BadTemplate
from carillon.intake.jinja.formats import Person, Unformattable, number

_NAMED = re.compile(r"\{(\w{1,64})\}")


class Messages(NamedTuple):
    """The translations of one locale."""

    locale: str
    forms: dict[tuple[str | None, str], tuple[str, ...]]
    """By context and key: one text, or one for each plural form."""
    plural: str

    def find(self, key: str, select: str | None, count: int | None) -> str | None:
        """The text of a key; the one for the selected case if there is one."""
        for context in (select, None) if select is not None else (None,):
            forms = self.forms.get((context, key))
            if forms is not None:
                at = 0 if count is None or len(forms) == 1 else min(_rule(self.plural)(abs(count)), len(forms) - 1)
                return forms[at] or None
        return None


Chain = Sequence[Messages]
"""The catalogues of a locale, its language and the default locale, in this order."""


@lru_cache(maxsize=64)
def _rule(expression: str) -> Any:  # noqa: ANN401 - a function made by gettext
    return gettext.c2py(expression)


def read_messages(locale: str, text: str) -> Messages:
    """Read a PO file; raises BadTemplate."""
    try:
        read = read_po(io.BytesIO(text.encode()), abort_invalid=True)
        plural = read.plural_expr
        _rule(plural)
    except (PoFileError, ValueError, UnicodeError, RecursionError) as error:
        raise BadTemplate(f"the catalogue of {locale} is not a PO file: {error}") from None
    forms: dict[tuple[str | None, str], tuple[str, ...]] = {}
    for message in read:
        if not message.id or message.fuzzy:
            continue
        key = message.id if isinstance(message.id, str) else message.id[0]
        said = (message.string,) if isinstance(message.string, str) else tuple(message.string or ())
        if any(said):
            forms[message.context or None, key] = said
    return Messages(locale, forms, plural)


def translate(chain: Chain, key: str, values: Mapping[str, Any], person: Person) -> str:
    """The text of a key with its values; a key that is a sentence is its own text."""
    count, select = values.get("count"), values.get("select")
    whole = count if isinstance(count, int) and not isinstance(count, bool) else None
    if count is not None and whole is None and not isinstance(count, float):
        raise Unformattable("count is a number")
    for messages in chain:
        found = messages.find(key, select, whole if whole is not None or count is None else 2)
        if found is not None:
            break
    else:
        if " " not in key:
            raise Unformattable(f"there is no translation of {key[:80]!r} for {person.locale}")
        found = key

    def value(name: re.Match[str]) -> str:
        given = values.get(name.group(1))
        if given is None:
            raise Unformattable(f"the translation of {key[:80]!r} needs {name.group(1)}")
        return number(given, None, person) if isinstance(given, int | float) else str(given)

    return _NAMED.sub(value, found)
