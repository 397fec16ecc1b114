"""The template service of a push worker: templates are fetched over HTTP and rendered here."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from carillon.compose import from_settings
from carillon.config.push import Push
from carillon.config.settings import Settings
from carillon.domain.notifications import Message, Template
from carillon.domain.outcomes import Outcome
from carillon.domain.ports import Breakers
from carillon.intake.render import render_message
from carillon.outbound.prepare import PrepareRules, TemplatePreparer, read_template, unreachable
from carillon.providers import Tools
from carillon.providers.http import HttpAnswer, HttpClient, HttpRequest, parse_retry_after

SERVICE = "template_service"
PATH = "/api/v1/templates/"
NOBODYS = "carillon-doctor"
"""The template the doctor asks for: a 404 proves that the service works."""
ASK_SECONDS = 4.0
_SERVER_ERROR = 500


def preparing(settings: Settings, push: Push, provider: str, tools: Tools, breakers: Breakers) -> TemplatePreparer:
    """Retries are as stubborn as the provider's unless `[policy.retry.template_service]` says otherwise."""
    base = push.template_service_url.rstrip("/") + PATH

    async def fetch(code: str, language: str) -> Template | Outcome:
        request = HttpRequest(
            url=base + quote(code, safe=""),
            method="GET",
            headers={"Accept": "application/json", "Accept-Language": language},
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

    def render(template: Template, variables: Mapping[str, Any]) -> Message:
        return render_message(template, variables, push.missing_variable)

    policies = from_settings.policies(settings)
    rules = PrepareRules(
        breaker=SERVICE,
        policy=policies.policies.get(SERVICE) or policies.get(provider),
        half_open_wait_seconds=push.half_open_seconds,
        cache_seconds=push.template_cache_seconds,
    )
    return TemplatePreparer(fetch, render, breakers=breakers, rules=rules, clock=tools.clock, dice=tools.dice)


async def ask_service(push: Push) -> str | None:
    """What is wrong with the template service; None when it answers."""
    http = HttpClient()
    try:
        url = push.template_service_url.rstrip("/") + PATH + NOBODYS
        request = HttpRequest(url=url, method="GET", timeout_seconds=min(push.template_timeout_seconds, ASK_SECONDS))
        answer = await http.post(request)
    finally:
        await http.aclose()
    if not isinstance(answer, HttpAnswer):
        return answer.error
    return f"HTTP {answer.status}" if answer.status >= _SERVER_ERROR else None
