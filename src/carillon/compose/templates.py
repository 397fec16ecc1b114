"""Templates and people's preferences: what messages are made of, and the endpoints for both."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from carillon.compose import from_settings
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Finding, Part
from carillon.compose.process import Process
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.locale import LocaleRules
from carillon.domain.notifications import Message, Template
from carillon.domain.ports import Clock
from carillon.domain.templates import Gap
from carillon.intake.people import Acquaintance, StoredPeople
from carillon.intake.render import check_template, names_in, render_message
from carillon.intake.stored_templates import StoredTemplates
from carillon.ledger.opening import Ledger
from carillon.system import new_id
from carillon.upkeep.api import preferences as preferences_api
from carillon.upkeep.api import templates as templates_api
from carillon.upkeep.api.templates_reading import TemplateTools
from carillon.upkeep.console import templates as console_templates
from carillon.web import Endpoint

SHOWN_GAPS = 20


class Wording:
    """The templates and the preferences of a process, over its ledger."""

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock) -> None:
        self._settings = settings
        self._ledger = ledger
        self.templates = StoredTemplates(ledger, from_settings.templates(settings), clock)
        self.acquaint = Acquaintance(StoredPeople(ledger), clock, quiet_hours=settings.preferences.quiet_hours)

    async def gaps(self) -> list[Gap]:
        """Which templates lack a supported language."""
        return await self.templates.gaps(self._settings.locale.supported)

    async def refuse_gaps(self) -> None:
        """With `templates.strict` a language that is missing ends the start."""
        found = await self.gaps() if self._settings.templates.strict else []
        if found:
            more = f" and {len(found) - SHOWN_GAPS} more" if len(found) > SHOWN_GAPS else ""
            listed = ", ".join(str(gap) for gap in found[:SHOWN_GAPS])
            raise ConfigurationError(f"templates.strict: these templates are missing: {listed}{more}")

    def endpoints(self) -> list[Endpoint]:
        """Templates and preferences over HTTP."""
        settings = self._settings

        def render(template: Template, data: Mapping[str, Any]) -> Message:
            return render_message(template, data, settings.templates.missing_variable)

        tools = TemplateTools(
            templates=self.templates,
            variables=names_in,
            check=check_template,
            render=render,
            changed=self.templates.forget,
            locale=LocaleRules(settings.locale.default, settings.locale.on_missing),
        )
        kept = templates_api.endpoints(self._ledger, tools, new_id, open_mount=settings.templates.open_mount)
        if settings.http.console:
            shelf = console_templates.Shelf(self._ledger, self.templates.filed, tools, settings.locale.supported)
            kept += console_templates.endpoints(shelf)
        return [*kept, *preferences_api.endpoints(self._ledger)]


class TemplatesPart(Part):
    """Reads templates from folders and from the ledger."""

    title = "Templates"
    wording: Wording

    def __init__(self, process: Process, ledger: LedgerPart) -> None:
        self._process = process
        self._ledger = ledger

    async def open(self, stack: AsyncExitStack) -> None:
        del stack
        self.wording = Wording(self._process.settings, self._ledger.ledger, self._process.clock)
        await self.wording.refuse_gaps()

    def endpoints(self) -> list[Endpoint]:
        return self.wording.endpoints()

    def pages(self) -> Sequence[str]:
        return ("templates",)

    async def examine(self) -> list[Finding]:
        settings = self._process.settings
        if settings.templates.render == "downstream" and not settings.templates.folders:
            return [Finding("Templates", "ok", "nothing is rendered here")]
        count = from_settings.templates(settings).count()
        return [Finding("Templates", "ok" if count else "warn", f"{count} read and checked")]
