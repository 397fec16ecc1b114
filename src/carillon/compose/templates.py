"""Templates and people's preferences, and the endpoints for both."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from carillon.compose import from_settings, messages
from carillon.compose.erasure import places_beside, places_outside
from carillon.compose.ledger import LedgerPart, preferences_of
from carillon.compose.part import DoctorFinding, Part
from carillon.compose.process import Process
from carillon.config.sections import Push
from carillon.config.settings import PageSettings, Settings
from carillon.domain.errors import ConfigurationError
from carillon.domain.notifications import Message, Template
from carillon.domain.outcomes import Outcome
from carillon.domain.ports import Breakers, Clock
from carillon.domain.templates import Gap, LocaleRules, written_as
from carillon.intake.jinja.catalogues import read_messages
from carillon.intake.jinja.formats import Person
from carillon.intake.jinja.ready import Composer
from carillon.intake.parts import previewed, too_many_segments
from carillon.intake.render import check_parts, is_plain, template_variables
from carillon.intake.rendering import composing, rendered
from carillon.intake.templates import StoredTemplates
from carillon.ledger.opening import Ledger
from carillon.outbound.prepare import PrepareRules, TemplatePreparer, read_template, unreachable
from carillon.providers import Tools
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest, parse_retry_after
from carillon.system import new_id
from carillon.upkeep.api import preferences as preferences_api
from carillon.upkeep.api import templates as templates_api
from carillon.upkeep.api.templates_reading import SeenBy, TemplateTools
from carillon.upkeep.consent import api as consent_api
from carillon.upkeep.consent import people, rights
from carillon.upkeep.consent.api import PageRules, PersonPage
from carillon.upkeep.consent.page import Theme
from carillon.upkeep.console import templates as console_templates
from carillon.web import Endpoint

SHOWN_GAPS = 20
SERVICE = "template_service"
PATH = "/api/v1/templates/"
TOKEN_REFUSED = (401, 403)
NOBODYS = "carillon-doctor"
"""The template the doctor asks for: a 404 proves that the service works."""
ASK_SECONDS = 4.0
_SERVER_ERROR = 500


def page_rules(settings: Settings) -> PageRules:
    """What the pages show, and how they look for each tenant."""
    tenants = settings.tenant.items()
    return PageRules(
        categories=from_settings.categories(settings),
        channels=tuple(settings.channels),
        locales=settings.locale.supported,
        holidays=tuple(settings.preferences.holidays),
        default_locale=settings.locale.default,
        tenant_locales=_tenant_locales(settings),
        theme=_theme(settings.consent.page),
        themes={name: _theme(tenant.page) for name, tenant in tenants if tenant.page is not None},
    )


def _tenant_locales(settings: Settings) -> dict[str, str]:
    return {
        name: tenant.default_locale for name, tenant in settings.tenant.items() if tenant.default_locale is not None
    }


def _theme(page: PageSettings) -> Theme:
    return Theme(**msgspec.structs.asdict(page))


class Wording:
    """The templates and the preferences of a process, over its ledger."""

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock) -> None:
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self.templates = StoredTemplates(
            ledger, messages.templates(settings), clock, composer=messages.composer(settings)
        )
        self.add_preferences = preferences_of(settings, ledger, clock)

    async def gaps(self) -> list[Gap]:
        """Which templates lack a supported language."""
        return await self.templates.gaps(self._settings.locale.supported)

    async def refuse_gaps(self) -> None:
        """Refuse to start with `templates.strict` if a language is missing."""
        found = await self.gaps() if self._settings.templates.strict else []
        if found:
            more = f" and {len(found) - SHOWN_GAPS} more" if len(found) > SHOWN_GAPS else ""
            listed = ", ".join(str(gap) for gap in found[:SHOWN_GAPS])
            raise ConfigurationError(f"templates.strict: these templates are missing: {listed}{more}")

    async def _checked(self, template: Template, tenant_id: str | None) -> Template:
        """A template that may be stored, ready to be rendered; raises BadTemplate."""
        if template.kind == "catalogue":
            read_messages(template.locale, template.text)
        elif template.engine == "simple":
            check_parts(template)
        return await self.templates.composed(template, tenant_id)

    def tools(self) -> TemplateTools:
        """What the endpoints about templates use of the intake."""
        settings = self._settings
        carry = messages.carry_rules(settings)

        async def render(template: Template, data: Mapping[str, Any], seen: SeenBy) -> Message:
            zone = seen.zone or messages.zone_of(settings, seen.tenant_id)
            person = Person(written_as(seen.locale, template.locale), zone, self._clock.wall())
            message = await rendered(template, data, settings.templates.missing_variable, person)
            return previewed(message, template, data, carry)

        def refusal(template: Template, message: Message) -> str | None:
            return too_many_segments(message, template.channel, template.code, carry)

        return TemplateTools(
            templates=self.templates,
            names=template_variables,
            ready=self._checked,
            render=render,
            refusal=refusal,
            plain=is_plain,
            changed=self.templates.forget,
            locale=LocaleRules(settings.locale.default, settings.locale.on_missing),
            tenant_locales=_tenant_locales(settings),
            categories=from_settings.categories(settings),
        )

    def endpoints(self) -> list[Endpoint]:
        """Templates and preferences over HTTP."""
        settings, tools = self._settings, self.tools()
        kept = templates_api.endpoints(self._ledger, tools, new_id, open_mount=settings.templates.open_mount)
        if settings.http.console:
            reader = console_templates.CatalogueReader(
                self._ledger, self.templates.filed, tools, settings.locale.supported
            )
            kept += console_templates.endpoints(reader)
        kept += preferences_api.endpoints(
            self._ledger, from_settings.categories(settings), tuple(settings.preferences.holidays)
        )
        kept += rights.endpoints(self._ledger, self._clock, places_beside(settings), places_outside(settings))
        links = from_settings.links(settings)
        kept += people.endpoints(self._ledger, from_settings.categories(settings), self._clock, links=links.works)
        if not links.works:
            return kept
        page = PersonPage(self._ledger, links, page_rules(settings), self._clock)
        return [*kept, *consent_api.endpoints(page)]


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
        return ("templates", "people", "categories")

    async def examine(self) -> list[DoctorFinding]:
        settings = self._process.settings
        if settings.templates.render == "downstream" and not settings.templates.folders:
            return [DoctorFinding("Templates", "ok", "this process renders no templates")]
        count = messages.templates(settings).count()
        return [DoctorFinding("Templates", "ok" if count else "warn", f"{count} read and checked")]


class AloneTemplates:
    """Templates without layouts, partials and translations, made ready once and not for each message."""

    def __init__(self, composer: Composer, most: int = 1000) -> None:
        self._composer = composer
        self._most = most
        self._made: dict[tuple[str, str], tuple[Template, Template]] = {}

    async def ready(self, template: Template) -> Template:
        """Raises BadTemplate."""
        if template.engine == "simple":
            return template
        of, made = self._made.get((template.code, template.locale), (None, template))
        if of is not template:
            made = await composing().run_politely(lambda: self._composer.ready(template, lambda _: {}))
            if len(self._made) >= self._most:
                self._made.clear()
            self._made[template.code, template.locale] = (template, made)
        return made


class ServiceToken:
    """The token for the template service, from the settings, or from a file that is read anew for every request."""

    def __init__(self, push: Push) -> None:
        if push.template_service_token and push.template_service_token_file:
            raise ConfigurationError(
                "push.template_service_token: give the token here or in push.template_service_token_file, not both"
            )
        self._file = push.template_service_token_file
        self._token = push.template_service_token
        try:
            self._read()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"push.template_service_token_file: cannot be read: {error}") from None
        if self._file and not self._token:
            raise ConfigurationError("push.template_service_token_file: holds no token")

    def headers(self) -> dict[str, str]:
        """The headers of every request to the service."""
        # While an operator replaces the file, the last token stays.
        with suppress(OSError, UnicodeDecodeError):
            self._read()
        given = {"Accept": "application/json"}
        return given | {"Authorization": f"Bearer {self._token}"} if self._token else given

    def _read(self) -> None:
        if self._file:
            self._token = Path(self._file).read_text(encoding="utf-8").strip() or self._token


def preparing(settings: Settings, push: Push, provider: str, tools: Tools, breakers: Breakers) -> TemplatePreparer:
    """The preparer of messages; retries are the provider's unless `[policy.retry.template_service]` says otherwise."""
    base = push.template_service_url.rstrip("/") + PATH
    token = ServiceToken(push)

    async def fetch(code: str, language: str) -> Template | Outcome:
        request = HttpRequest(
            url=base + quote(code, safe=""),
            method="GET",
            headers={**token.headers(), "Accept-Language": language},
            timeout_seconds=push.template_timeout_seconds,
        )
        answer = await tools.http.post(request)
        if not isinstance(answer, HttpAnswer):
            return unreachable(answer.error, answer.classification)
        if not answer.complete:
            return unreachable("the answer was cut short", "cut_short")
        retry_after = None
        if not answer.ok:
            retry_after = parse_retry_after(answer.headers.get("retry-after"), tools.clock.wall())
        return read_template(code, answer.status, answer.body, retry_after)

    alone = AloneTemplates(messages.composer(settings))

    async def render(template: Template, variables: Mapping[str, Any]) -> Message:
        # The service hands out one template: a layout, a partial or a translation of its own is not there.
        ready = await alone.ready(template)
        person = Person(template.locale or settings.locale.default, settings.locale.time_zone, tools.clock.wall())
        return await rendered(ready, variables, push.missing_variable, person)

    policies = from_settings.policies(settings)
    rules = PrepareRules(
        breaker=SERVICE,
        policy=policies.policies.get(SERVICE) or policies.get(provider),
        half_open_wait_seconds=push.half_open_seconds,
        cache_seconds=push.template_cache_seconds,
    )
    return TemplatePreparer(fetch, render, breakers=breakers, rules=rules, clock=tools.clock, dice=tools.dice)


async def ask_service(push: Push) -> str | None:
    """The error of the template service; None if it answers."""
    request = HttpRequest(
        url=push.template_service_url.rstrip("/") + PATH + NOBODYS,
        method="GET",
        headers=ServiceToken(push).headers(),
        timeout_seconds=min(push.template_timeout_seconds, ASK_SECONDS),
    )
    http = HttpClient()
    try:
        answer = await http.post(request)
    finally:
        await http.aclose()
    if not isinstance(answer, HttpAnswer):
        return answer.error
    if answer.status in TOKEN_REFUSED:
        return f"HTTP {answer.status}: it refuses our token; set TEMPLATE_SERVICE_TOKEN or TEMPLATE_SERVICE_TOKEN_FILE"
    return f"HTTP {answer.status}" if answer.status >= _SERVER_ERROR else None
