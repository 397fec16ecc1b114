"""Makes a jinja template ready: joined with its layout, partials, translations and brand, and compiled."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from carillon.domain.errors import BadTemplate, Place
from carillon.domain.notifications import ComposedPart, Composition, Template
from carillon.domain.templates import CATALOGUE_KEY, RESERVED_BRAND
from carillon.intake.carried_fields import check_fields, has_tags, leaves
from carillon.intake.jinja.budget import merged
from carillon.intake.jinja.catalogues import Messages, read_messages
from carillon.intake.jinja.compose import Lookup, compose, references
from carillon.intake.jinja.engine import compiled
from carillon.intake.jinja.mail import as_text, held, with_inlined_styles
from carillon.intake.jinja.mjml import from_mjml
from carillon.intake.jinja.scan import Piece, Tag, Where, scan
from carillon.intake.links import scripts_in, unsafe_at

Variants = Mapping[tuple[str, str], Template]
"""The templates of one key, by channel and locale."""
Find = Callable[[str], Variants]
"""The templates of a key: layouts, partials and catalogues among them."""
_SOURCES = {"subject": ("subject",), "text": ("text",), "html": ("html", "text"), "mjml": ("mjml", "html", "text")}
"""Where a part of a partial may come from: a partial that is only a body serves every part."""

_messages = lru_cache(maxsize=512)(read_messages)


class Composer(msgspec.Struct, frozen=True, kw_only=True):
    """What all jinja templates share: the default locale and the brands."""

    default_locale: str = "en-US"
    brands: dict[str, dict[str, Any]] = {}
    tenant_brands: dict[str, str] = {}

    def ready(self, template: Template, find: Find, tenant_id: str | None = None) -> Template:
        """The template with its composition; raises BadTemplate with a place."""
        if template.engine != "jinja" or template.kind == "catalogue":
            return template
        check_fields(template)
        html = self._html(template, find)
        composition = Composition(
            text=compiled(
                self._text(template, html, find), escapes=False, tidies=html is not None and not template.text
            ),
            subject=None if template.subject is None else self._subject(template, template.subject, find),
            html=None if html is None else compiled(html, escapes=True),
            fields=self._fields(template, find),
            messages=tuple(self._chain(template.locale, find(CATALOGUE_KEY))),
            brand=self._brand(tenant_id),
            brands=self.brands,
        )
        return msgspec.structs.replace(template, composition=composition, fault=None, fault_at=None)

    def usable(self, template: Template, find: Find, tenant_id: str | None = None) -> Template:
        """The same; a template that cannot be made ready says why when it is rendered."""
        try:
            return self.ready(template, find, tenant_id)
        except BadTemplate as error:
            return msgspec.structs.replace(template, composition=None, fault=error.message, fault_at=error.place)

    def missing_translations(self, template: Template, find: Find) -> list[str]:
        """The keys that the template, its layout and its partials translate and that its locale's catalogue lacks."""
        chain = self._chain(template.locale, find(CATALOGUE_KEY))
        near = list(dict.fromkeys(one.locale for one in chain))[:2]
        own = [one for one in chain if one.locale in near and _speaks(one, template.locale)]
        keys = dict.fromkeys(
            key
            for part in (template, *self._shared(template, find).values())
            for source in sources(part)
            for key in translated_keys(source)
        )
        return [key for key in keys if not any(_has(one, key) for one in own)]

    def shared_keys(self, template: Template, find: Find) -> set[str]:
        """The keys of the layouts and partials that the template becomes a message with."""
        return set(self._shared(template, find))

    def _shared(self, template: Template, find: Find) -> dict[str, Template]:
        """Those layouts and partials by their keys."""
        found: dict[str, Template] = {}
        wanted = needs(template)
        while wanted:
            key = wanted.pop(0)
            one = nearest(find(key), template.channel, template.locale, self.default_locale)
            if one is not None and key not in found:
                found[key] = one
                wanted += needs(one)
        return found

    def _brand(self, tenant_id: str | None) -> dict[str, Any]:
        tenant = tenant_id or ""
        name = self.tenant_brands.get(tenant) or (tenant if tenant in self.brands else RESERVED_BRAND)
        return merged(self.brands.get(RESERVED_BRAND, {}), self.brands.get(name, {}))

    def _fields(self, template: Template, find: Find) -> dict[str, ComposedPart]:
        lookup = self._lookup("subject", template, find)
        written = [(path, text) for path, text in leaves(template.fields, template.channel) if has_tags(text)]
        return {
            text: compiled(compose(Where(template.code, path), text, lookup), escapes=False) for path, text in written
        }

    def _subject(self, template: Template, source: str, find: Find) -> ComposedPart:
        lookup = self._lookup("subject", template, find)
        return compiled(compose(Where(template.code, "subject"), source, lookup), escapes=False)

    def _text(self, template: Template, html: list[Piece] | None, find: Find) -> list[Piece]:
        if html is None or template.text:
            return self._part(template, "text", template.text, find)
        return as_text(html)

    def _html(self, template: Template, find: Find) -> list[Piece] | None:
        part = "html" if template.mjml is None else "mjml"
        source = template.html if template.mjml is None else template.mjml
        if source is None:
            return None
        place = Place(template.code, 1, 1, part)
        written = pieces = self._part(template, part, source, find)
        # A layout and a partial are pieces of MJML, which only their template makes whole.
        if template.kind == "message":
            pieces = from_mjml(pieces, place) if part == "mjml" else with_inlined_styles(pieces, place)
        scheme = scripts_in("".join(piece if isinstance(piece, str) else "" for piece in pieces))
        if scheme is not None:
            shown = held(written, strict=False)
            said = f"a link begins with {scheme} but links begin with https:, mailto: or the like"
            raise BadTemplate(said, place=shown.place(unsafe_at(shown.source)) or place)
        return pieces

    def _part(self, template: Template, part: str, source: str, find: Find) -> list[Piece]:
        lookup = self._lookup(part, template, find)
        layout = template.layout
        if layout is not None and part == "text" and lookup(layout) is None and find(layout):
            # A layout without a text of its own is for the HTML only.
            layout = None
        return compose(Where(template.code, part), source, lookup, layout)

    def _lookup(self, part: str, template: Template, find: Find) -> Lookup:
        def source(key: str) -> str | None:
            found = nearest(find(key), template.channel, template.locale, self.default_locale)
            if found is None:
                return None
            return next((said for said in (getattr(found, name) for name in _SOURCES[part]) if said), None)

        return source

    def _chain(self, locale: str, catalogues: Variants) -> list[Messages]:
        found: dict[str, list[str]] = {}
        for where, one in sorted(catalogues.items()):
            if one.kind == "catalogue":
                found.setdefault(where[1], []).append(one.text)
        wished = dict.fromkeys((locale, locale.partition("-")[0], self.default_locale, self.default_locale[:2]))
        return [_messages(one, text) for one in wished for text in found.get(one, [])]


def _speaks(messages: Messages, locale: str) -> bool:
    return messages.locale.partition("-")[0] == locale.partition("-")[0]


def _has(messages: Messages, key: str) -> bool:
    # A plural form that nobody has translated is told in another language.
    return any(said == key and all(forms) for (_, said), forms in messages.forms.items())


def layered(*layers: Variants) -> Variants:
    """The templates of a key in several layers; what the first one has goes before the others.

    Catalogues are all there, the first one first: one that has some translations hides no other ones.
    """
    found: dict[tuple[str, str], Template] = {}
    for number, layer in reversed(tuple(enumerate(layers))):
        for (channel, locale), one in layer.items():
            found[f"{number} {channel}" if one.kind == "catalogue" else channel, locale] = one
    return found


def nearest(variants: Variants, channel: str, locale: str, default: str) -> Template | None:
    """The layout or partial for a channel and a locale: the same ones, else its language, the default, any."""
    found = {where: one for where, one in variants.items() if one.kind in {"layout", "partial"}}
    language = locale.partition("-")[0]

    def distance(where: tuple[str, str]) -> tuple[int, bool, str, str]:
        order = (locale, language, default)
        place = order.index(where[1]) if where[1] in order else 2 + (where[1].partition("-")[0] != language)
        return place, where[0] != channel, *where

    return found[min(found, key=distance)] if found else None


def sources(template: Template) -> list[str]:
    """Every source of a template."""
    given = (template.subject, template.text, template.html, template.mjml, *dict(leaves(template.fields, "")).values())
    return [source for source in given if source]


def needs(template: Template) -> list[str]:
    """The keys of layouts, partials and catalogues that a template needs; none if it does not compile."""
    if template.engine != "jinja" or template.kind == "catalogue":
        return []
    try:
        named = [key for source in sources(template) for key in references(source)]
    except BadTemplate:
        named = []
    return list(dict.fromkeys((*named, *filter(None, [template.layout]), CATALOGUE_KEY)))


def translated_keys(source: str) -> list[str]:
    """The keys that a source gives to `t` as text; none if it cannot be read."""
    try:
        tags = [piece.tokens for piece in scan(Where("", ""), source) if isinstance(piece, Tag)]
    except BadTemplate:
        return []
    calls = [call for tokens in tags for call in zip(tokens, tokens[1:], tokens[2:], strict=False)]
    return [
        key.text[1:-1] for name, bracket, key in calls if (name.text, bracket.text, key.kind) == ("t", "(", "string")
    ]
