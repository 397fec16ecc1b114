"""Templates, from folders and from the ledger, ready to be rendered."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from carillon.coalesce import Coalescer
from carillon.domain.errors import BadTemplate, ConfigurationError, NoSuchFunction
from carillon.domain.notifications import Template
from carillon.domain.ports import Clock
from carillon.domain.templates import Gap, TemplateLedger, gaps
from carillon.intake.jinja.ready import Composer, Find, Variants, layered, needs
from carillon.intake.rendering import composing
from carillon.intake.template_files import JINJA_PARTS, Place, noted, read_folder

Key = tuple[str | None, str]
"""A tenant and a template's key."""
Layers = tuple[Variants, Variants, Variants]
"""A tenant's own templates of a key, which go before everybody's, and stored ones before those of files."""
_ROUNDS = 10
"""How often layouts may name layouts."""


def category_of(templates: Mapping[tuple[str, str], Template]) -> str | None:
    """The first category that the templates of one code name."""
    return next((named for _, one in sorted(templates.items()) if (named := one.category) is not None), None)


class FileTemplates:
    """All templates of a folder, read and checked once at the start."""

    def __init__(
        self,
        templates: Mapping[Place, Template],
        composer: Composer | None = None,
        beneath: Mapping[Place, Template] | None = None,
        faults: list[str] | None = None,
    ) -> None:
        """`beneath` are layouts, partials and catalogues that templates may use and that are not among them.

        Raises ConfigurationError for a template that does not compile, or says it in `faults` and leaves it out.
        """
        self._beneath = beneath or {}
        self._raw: dict[str, dict[tuple[str, str], Template]] = {}
        for (code, channel, locale), template in sorted(templates.items()):
            self._raw.setdefault(code, {})[channel, locale] = template
        self._templates: dict[Place, Template] = {}
        self._variants: dict[str, list[tuple[str, str]]] = {}
        for place, template in sorted(templates.items()):
            if template.kind != "message":
                continue
            with noted(faults):
                self._templates[place] = self._ready(template, composer or Composer())
                self._variants.setdefault(place[0], []).append(place[1:])

    @classmethod
    def read(
        cls,
        *roots: Path,
        composer: Composer | None = None,
        beneath: Mapping[Place, Template] | None = None,
        faults: list[str] | None = None,
    ) -> "FileTemplates":
        """Read every folder given; a later one overrides an earlier one, and of translations each one overrides one."""
        found: dict[Place, Template] = {}
        for root in roots:
            over = read_folder(root, (composer or Composer()).default_locale, faults)
            found = {_beside(place, one, over): one for place, one in found.items()} | over
        return cls(found, composer, beneath, faults)

    def unfit_alone(self, composer: Composer) -> list[str]:
        """What is wrong with layouts and partials; of those that messages need, in each of their parts."""
        every = self.everything()
        messages = [one for one in every.values() if one.kind == "message"]
        needed = {key for one in messages for key in composer.shared_keys(one, self.usable)}
        found: list[str] = []
        for (code, _, _), template in every.items():
            if template.kind not in {"layout", "partial"}:
                continue
            for one in _in_parts(template) if code in needed else [template]:
                try:
                    composer.ready(one, self.usable)
                except BadTemplate as error:
                    # What messages need may call their macros.
                    if code not in needed or not isinstance(error, NoSuchFunction):
                        found.append(str(_wrong(template, error)))
        return found

    def _ready(self, template: Template, composer: Composer) -> Template:
        try:
            return composer.ready(template, self.usable)
        except BadTemplate as error:
            raise _wrong(template, error) from None

    def usable(self, code: str) -> Variants:
        """The templates of one code that others may use, those beneath among them."""
        beneath = {place[1:]: one for place, one in self._beneath.items() if place[0] == code}
        return layered(self.raw(code), beneath)

    async def find(self, code: str, channel: str, locale: str, tenant_id: str | None = None) -> Template | None:
        """Templates of folders are for all tenants."""
        del tenant_id
        return self._templates.get((code, channel, locale))

    async def variants(self, code: str, tenant_id: str | None = None) -> list[tuple[str, str]]:
        """The channels and locales of one code."""
        del tenant_id
        return self._variants.get(code, [])

    async def category(self, code: str, tenant_id: str | None = None) -> str | None:
        """The category in the code's file."""
        del tenant_id
        return category_of(self.raw(code))

    def raw(self, code: str) -> Variants:
        """The templates of one code as they are written, layouts, partials and catalogues among them."""
        return self._raw.get(code, {})

    def everything(self) -> dict[Place, Template]:
        """All templates as they are written, of every kind."""
        return {(code, *where): one for code, variants in self._raw.items() for where, one in variants.items()}

    def all(self) -> dict[tuple[str, str, str], Template]:
        """All templates of messages, by code, channel and locale."""
        return dict(self._templates)

    def count(self) -> int:
        """The number of templates, for `doctor`."""
        return len(self._templates)


def _beside(place: Place, template: Template, over: Mapping[Place, Template]) -> Place:
    """Where a template stays; a catalogue makes way for that of a later folder, and is asked after it."""
    code, channel, locale = place
    makes_way = template.kind == "catalogue" and (code, channel.rstrip(), locale) in over
    return (code, f"{channel} ", locale) if makes_way else place


def _in_parts(template: Template) -> list[Template]:
    """The template once for each of its parts, with that part alone: a message needs one, and not always the others."""
    empty = msgspec.structs.replace(template, subject=None, text="", html=None, mjml=None)
    return [
        msgspec.structs.replace(empty, **{part: source}) for part in JINJA_PARTS if (source := getattr(template, part))
    ]


def _wrong(template: Template, error: BadTemplate) -> ConfigurationError:
    return ConfigurationError(f"template {template.code}/{template.locale}/{template.channel}: {error}")


class OneTemplate:
    """Satisfies Templates with a single template, such as one that is not published yet."""

    def __init__(self, template: Template) -> None:
        self._template = template

    async def find(self, code: str, channel: str, locale: str, tenant_id: str | None = None) -> Template | None:
        del code, channel, locale, tenant_id
        return self._template

    async def variants(self, code: str, tenant_id: str | None = None) -> list[tuple[str, str]]:
        del code, tenant_id
        return [(self._template.channel, self._template.locale)]

    async def category(self, code: str, tenant_id: str | None = None) -> str | None:
        """None: a test goes to its author, who is not asked about wishes for categories."""
        del code, tenant_id
        return None


class TemplateSet(NamedTuple):
    """The templates of one key."""

    templates: dict[tuple[str, str], Template]
    """By channel and locale."""
    variants: list[tuple[str, str]]
    """The same channels and locales, sorted once, because every notification needs them."""
    category: str | None = None


FRESH_SECONDS = 1.0
"""So long a process goes by the templates that it has read; after that it knows what another process has stored."""


class StoredTemplates:
    """Satisfies Templates; reads the ledger's revision once in `fresh_seconds`, and templates only after a change."""

    def __init__(
        self,
        ledger: TemplateLedger,
        files: FileTemplates,
        clock: Clock,
        *,
        composer: Composer | None = None,
        fresh_seconds: float = FRESH_SECONDS,
        most: int = 10_000,
    ) -> None:
        self._composer = composer or Composer()
        self._ledger = ledger
        self._files = files
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._most = most
        self._sets: dict[Key, TemplateSet] = {}
        self._revision: tuple[int, int] | None = None
        self._fresh_until = -math.inf
        self._forgotten = 0
        self._loads: Coalescer[Key, TemplateSet] = Coalescer(self._load, max_batch=500, max_pending=10_000)

    async def find(self, code: str, channel: str, locale: str, tenant_id: str | None = None) -> Template | None:
        return (await self._set((tenant_id, code))).templates.get((channel, locale))

    async def variants(self, code: str, tenant_id: str | None = None) -> list[tuple[str, str]]:
        return (await self._set((tenant_id, code))).variants

    async def category(self, code: str, tenant_id: str | None = None) -> str | None:
        return (await self._set((tenant_id, code))).category

    def forget(self) -> None:
        """This process has stored a template: read again at the next request, and drop the reads in flight."""
        self._forgotten += 1
        self._sets.clear()
        self._fresh_until = -math.inf

    def filed(self) -> dict[tuple[str, str, str], Template]:
        """Templates of folders, by code, channel and locale."""
        return self._files.all()

    async def gaps(self, supported: Sequence[str]) -> list[Gap]:
        """The templates that are missing in a supported locale."""
        filed = [(None, *variant) for variant in self._files.all()]
        return gaps([*filed, *await self._ledger.template_variants()], supported)

    async def _set(self, key: Key) -> TemplateSet:
        if self._clock.monotonic() < self._fresh_until:
            found = self._sets.get(key)
            if found is not None:
                return found
        return await self._loads.add(key)

    async def _load(self, keys: Sequence[Key]) -> list[TemplateSet]:
        forgotten, began = self._forgotten, self._clock.monotonic()
        revision = await self._ledger.template_revision()
        if revision != self._revision:
            self._sets.clear()
        sets = {key: self._sets[key] for key in keys if key in self._sets}
        missing = [key for key in dict.fromkeys(keys) if key not in sets]
        if missing:
            sets |= await self._read(missing)
        # Templates read before a write of this process must not be kept.
        if forgotten == self._forgotten:
            if len(self._sets) + len(missing) > self._most:
                self._sets.clear()
            self._sets |= sets
            self._revision = revision
            self._fresh_until = began + self._fresh_seconds
        return [sets[key] for key in keys]

    async def _read(self, keys: Sequence[Key]) -> dict[Key, TemplateSet]:
        layers = await self._with_needs(keys)
        return await composing().run_politely(lambda: {key: self._ready(key, layers) for key in keys})

    async def _with_needs(self, keys: Iterable[Key]) -> dict[Key, Layers]:
        """The templates of these keys as they are written, and of every layout and partial that they name."""
        found: dict[Key, Layers] = {}
        wanted = list(dict.fromkeys(keys))
        for _ in range(_ROUNDS):
            if not wanted:
                break
            stored = await self._stored(wanted)
            for tenant, code in wanted:
                found[tenant, code] = (
                    stored.get((tenant, code), {}),
                    stored.get((None, code), {}),
                    self._files.raw(code),
                )
            named = [
                (key[0], name)
                for key in wanted
                for layer in found[key]
                for one in layer.values()
                for name in needs(one)
            ]
            wanted = [key for key in dict.fromkeys(named) if key not in found]
        return found

    async def _stored(self, keys: Sequence[Key]) -> dict[Key, dict[tuple[str, str], Template]]:
        asked = [asked for tenant, code in keys for asked in ((None, code), (tenant, code))]
        stored: dict[Key, dict[tuple[str, str], Template]] = {}
        for one in await self._ledger.current_templates(asked):
            stored.setdefault((one.tenant_id, one.template_key), {})[one.channel, one.locale] = one.template()
        return stored

    def _ready(self, key: Key, layers: Mapping[Key, Layers]) -> TemplateSet:
        find = _finding(key[0], layers)
        messages = {where: one for where, one in find(key[1]).items() if one.kind == "message"}
        ready = {where: self._composer.usable(one, find, key[0]) for where, one in messages.items()}
        category = next((named for layer in layers[key] if (named := category_of(layer)) is not None), None)
        return TemplateSet(ready, sorted(ready), category)

    async def composed(self, template: Template, tenant_id: str | None = None) -> Template:
        """A template that need not be stored, ready to be rendered; raises BadTemplate with a place."""
        wanted = [(tenant_id, name) for name in needs(template)]
        layers = await self._with_needs(wanted) if wanted else {}
        return await composing().run_politely(
            lambda: self._composer.ready(template, _finding(tenant_id, layers), tenant_id)
        )


def _finding(tenant_id: str | None, layers: Mapping[Key, Layers]) -> Find:
    def find(code: str) -> Variants:
        own, shared, filed = layers.get((tenant_id, code), ({}, {}, {}))
        # Nobody's own are those of all.
        return layered(shared, filed) if tenant_id is None else layered(own, shared, filed)

    return find
