"""Templates from the ledger with files behind them: a tenant's own, then everybody's, then a folder's."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from carillon.coalesce import Coalescer
from carillon.domain.notifications import Template
from carillon.domain.ports import Clock
from carillon.domain.templates import Gap, TemplateLedger, gaps
from carillon.intake.templates import FileTemplates

Key = tuple[str | None, str]
"""A tenant and a template's key."""


class Shelf(NamedTuple):
    """Everything under one key."""

    templates: dict[tuple[str, str], Template]
    """By channel and locale."""
    variants: list[tuple[str, str]]
    """The same channels and locales, in order: asked for with every notification, sorted once."""


class StoredTemplates:
    """Satisfies Templates; while nothing changes, the ledger is asked once in `fresh_seconds`."""

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
        self._shelves: dict[Key, Shelf] = {}
        self._revision: tuple[int, int] | None = None
        self._fresh_until = -math.inf
        self._forgotten = 0
        self._loads: Coalescer[Key, Shelf] = Coalescer(self._load, max_batch=500, max_pending=10_000)

    async def find(self, code: str, channel: str, locale: str, tenant_id: str | None = None) -> Template | None:
        return (await self._shelf((tenant_id, code))).templates.get((channel, locale))

    async def variants(self, code: str, tenant_id: str | None = None) -> list[tuple[str, str]]:
        return (await self._shelf((tenant_id, code))).variants

    def forget(self) -> None:
        """Something was written by this process: the next question is asked anew, and no answer under way is kept."""
        self._forgotten += 1
        self._shelves.clear()
        self._fresh_until = -math.inf

    def filed(self) -> dict[tuple[str, str, str], Template]:
        """What lies in folders, by code, channel and locale."""
        return self._files.all()

    async def gaps(self, supported: Sequence[str]) -> list[Gap]:
        """What is missing for every template to exist in every supported locale."""
        filed = [(None, *variant) for variant in self._files.all()]
        return gaps([*filed, *await self._ledger.template_variants()], supported)

    async def _shelf(self, key: Key) -> Shelf:
        if self._clock.monotonic() < self._fresh_until:
            shelf = self._shelves.get(key)
            if shelf is not None:
                return shelf
        return await self._loads.add(key)

    async def _load(self, keys: Sequence[Key]) -> list[Shelf]:
        forgotten, began = self._forgotten, self._clock.monotonic()
        revision = await self._ledger.template_revision()
        if revision != self._revision:
            self._shelves.clear()
        shelves = {key: self._shelves[key] for key in keys if key in self._shelves}
        missing = [key for key in dict.fromkeys(keys) if key not in shelves]
        if missing:
            shelves |= await self._read(missing)
        # What was read before a write of our own must not outlive it.
        if forgotten == self._forgotten:
            if len(self._shelves) + len(missing) > self._most:
                self._shelves.clear()
            self._shelves |= shelves
            self._revision = revision
            self._fresh_until = began + self._fresh_seconds
        return [shelves[key] for key in keys]

    async def _read(self, keys: Sequence[Key]) -> dict[Key, Shelf]:
        asked = [asked for tenant, code in keys for asked in ((None, code), (tenant, code))]
        stored: dict[Key, dict[tuple[str, str], Template]] = {}
        for one in await self._ledger.current_templates(asked):
            stored.setdefault((one.tenant_id, one.template_key), {})[one.channel, one.locale] = one.template()
        found = {
            (tenant, code): self._files.under(code) | stored.get((None, code), {}) | stored.get((tenant, code), {})
            for tenant, code in keys
        }
        return {key: Shelf(templates, sorted(templates)) for key, templates in found.items()}
