"""Templates: from folders, `<root>/<code>/<locale>/<channel>/{text,subject,html}.tmpl`, and from the ledger.

A file `<root>/<code>/category` names the category of the code.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from carillon.coalesce import Coalescer
from carillon.domain.errors import BadTemplate, ConfigurationError
from carillon.domain.notifications import Template
from carillon.domain.ports import Clock
from carillon.domain.templates import Gap, TemplateLedger, gaps
from carillon.intake.render import check_template

PARTS = ("subject", "text", "html")
Key = tuple[str | None, str]
"""A tenant and a template's key."""


def category_of(templates: Mapping[tuple[str, str], Template]) -> str | None:
    """The first category that the templates of one code name."""
    return next((named for _, one in sorted(templates.items()) if (named := one.category) is not None), None)


class FileTemplates:
    """All templates of a folder, read and checked once at the start."""

    def __init__(self, templates: dict[tuple[str, str, str], Template]) -> None:
        self._templates = templates
        self._variants: dict[str, list[tuple[str, str]]] = {}
        for code, channel, locale in sorted(templates):
            self._variants.setdefault(code, []).append((channel, locale))

    @classmethod
    def read(cls, *roots: Path) -> "FileTemplates":
        """Read every folder given; a later one overrides an earlier one."""
        found: dict[tuple[str, str, str], Template] = {}
        for root in roots:
            for folder in sorted({file.parent for file in root.glob("*/*/*/*.tmpl")}):
                template = _read_one(folder)
                found[template.code, template.channel, template.locale] = template
        return cls(found)

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
        return category_of(self.under(code))

    def under(self, code: str) -> dict[tuple[str, str], Template]:
        """The templates of one code, by channel and locale."""
        return {
            (channel, locale): self._templates[code, channel, locale]
            for channel, locale in self._variants.get(code, [])
        }

    def all(self) -> dict[tuple[str, str, str], Template]:
        """All templates, by code, channel and locale."""
        return dict(self._templates)

    def count(self) -> int:
        """The number of templates, for `doctor`."""
        return len(self._templates)


def _read_one(folder: Path) -> Template:
    code, locale, channel = folder.parts[-3:]
    parts: dict[str, str] = {}
    for part in PARTS:
        file = folder / f"{part}.tmpl"
        if file.exists():
            # Editors end files with a line break; a subject with one would be refused as two lines.
            parts[part] = file.read_text(encoding="utf-8").rstrip("\n")
            try:
                check_template(parts[part])
            except BadTemplate as error:
                raise ConfigurationError(f"template {code}/{locale}/{channel}/{part}.tmpl: {error}") from error
    if "text" not in parts:
        raise ConfigurationError(f"template {code}/{locale}/{channel}: text.tmpl is missing")
    category = folder.parent.parent / "category"
    return Template(
        code=code,
        channel=channel,
        locale=locale,
        text=parts["text"],
        subject=parts.get("subject"),
        html=parts.get("html"),
        category=category.read_text(encoding="utf-8").strip() or None if category.exists() else None,
    )


class TemplateSet(NamedTuple):
    """The templates of one key."""

    templates: dict[tuple[str, str], Template]
    """By channel and locale."""
    variants: list[tuple[str, str]]
    """The same channels and locales, sorted once, because every notification needs them."""
    category: str | None = None


class StoredTemplates:
    """Satisfies Templates; reads the ledger's revision once in `fresh_seconds`, and templates only after a change."""

    def __init__(
        self,
        ledger: TemplateLedger,
        files: FileTemplates,
        clock: Clock,
        *,
        fresh_seconds: float = 1.0,
        most: int = 10_000,
    ) -> None:
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
        asked = [asked for tenant, code in keys for asked in ((None, code), (tenant, code))]
        stored: dict[Key, dict[tuple[str, str], Template]] = {}
        for one in await self._ledger.current_templates(asked):
            stored.setdefault((one.tenant_id, one.template_key), {})[one.channel, one.locale] = one.template()
        found: dict[Key, TemplateSet] = {}
        for tenant, code in keys:
            # A tenant's own templates go before everybody's, and stored ones before those of files.
            layers = (stored.get((tenant, code), {}), stored.get((None, code), {}), self._files.under(code))
            templates = layers[2] | layers[1] | layers[0]
            category = next((named for layer in layers if (named := category_of(layer)) is not None), None)
            found[tenant, code] = TemplateSet(templates, sorted(templates), category)
        return found
