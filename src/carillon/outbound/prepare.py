"""Messages rendered just before the call: the template comes from the template service, behind a breaker."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, assert_never

import msgspec

from carillon.domain.breaker import Admission, State
from carillon.domain.claims import Claim
from carillon.domain.decide import OPEN_PAUSE_SECONDS, Standing, decide
from carillon.domain.errors import BadIntent, BadTemplate, Overloaded
from carillon.domain.notifications import Message, Template
from carillon.domain.outcomes import Outcome, Refused, Sent, Unavailable
from carillon.domain.policy import RetryPolicy
from carillon.domain.ports import Breakers, Clock, Dice
from carillon.domain.verdicts import Bury, Defer, FailOver, Finish, Retry, Skip
from carillon.outbound.breakers import admitted

_CACHED = 1000
_OK, _SERVER_ERROR = 200, 500
_LATER = frozenset({408, 429})
_TOKEN_REFUSED = frozenset({401, 403})

Fetch = Callable[[str, str], Awaitable[Template | Outcome]]
"""Fetches the template of a code in a language; the outcome says why there is none."""
Render = Callable[[Template, Mapping[str, Any]], Awaitable[Message]]
"""Raises BadIntent, BadTemplate and Overloaded."""


class _Content(msgspec.Struct):
    title: str | None = None
    body: str | None = None


class _TemplateAnswer(msgspec.Struct):
    """The fields of the template service's answer that we use; it may hold others."""

    content: _Content
    type: str = ""
    id: str | None = None
    language: str = ""
    version: int = 1
    engine: Literal["simple", "jinja"] = "simple"
    """A service that says nothing means substitution."""
    push: dict[str, Any] | None = None
    """What the push carries beside title and body, under the names of our own templates: image, actionUrl and so on."""
    default_variables: dict[str, Any] | None = None
    """For variables that a message leaves out."""


class PrepareRules(msgspec.Struct, frozen=True, kw_only=True):
    """Breaker, retries and cache of the template service."""

    breaker: str
    policy: RetryPolicy
    half_open_wait_seconds: float = 0.0
    cache_seconds: float = 0.0
    """0 fetches the template for every message."""


class TemplatePreparer:
    """Satisfies Preparer; its retries do not count as attempts of the message."""

    def __init__(
        self, fetch: Fetch, render: Render, *, breakers: Breakers, rules: PrepareRules, clock: Clock, dice: Dice
    ) -> None:
        self._fetch = fetch
        self._render = render
        self._breakers = breakers
        self._rules = rules
        self._clock = clock
        self._dice = dice
        self._cache: dict[tuple[str, str], tuple[float, Template]] = {}

    async def prepare(self, claim: Claim) -> Message | Bury | Defer:
        template = await self._template(claim.notification_type, claim.resolved_locale or "")
        if not isinstance(template, Template):
            return template
        try:
            return await self._render(template, msgspec.json.decode(claim.payload_json, type=dict[str, Any]))
        except Overloaded:
            return Defer(OPEN_PAUSE_SECONDS * (1 + self._dice()))
        except (BadIntent, BadTemplate) as error:
            return Bury("template", str(error))

    async def _template(self, code: str, language: str) -> Template | Bury | Defer:
        until, cached = self._cache.get((code, language), (0.0, None))
        if cached is not None and self._clock.monotonic() < until:
            return cached
        found = await self._fetched(code, language)
        if isinstance(found, Template) and self._rules.cache_seconds > 0.0:
            if len(self._cache) >= _CACHED:
                self._cache.clear()
            self._cache[code, language] = (self._clock.monotonic() + self._rules.cache_seconds, found)
        return found

    async def _fetched(self, code: str, language: str) -> Template | Bury | Defer:
        """Fetch until there is an answer, the retries are used up, or the breaker is open."""
        rules, asked = self._rules, 0
        causes: list[str] = []
        while True:
            said = await admitted(self._breakers, rules.breaker, self._clock, rules.half_open_wait_seconds)
            if said is Admission.STOP:
                return self._open(*causes)
            asked += 1
            answer = await self._fetch(code, language)
            # A 404 proves that the template service is healthy.
            ok = isinstance(answer, Template | Refused)
            await self._breakers.record(rules.breaker, ok=ok)
            if isinstance(answer, Template):
                return answer
            verdict = self._decide(answer, asked, probe=said is Admission.PROBE)
            if not isinstance(verdict, Retry):
                return verdict
            causes = [_reason(answer, asked)]
            if (await self._breakers.states()).get(rules.breaker) is State.OPEN:
                return self._open(*causes)
            await self._clock.sleep(verdict.delay)

    def _open(self, *causes: str) -> Bury | Defer:
        """The verdict while the breaker is open; a message whose own fetch failed before tells that first."""
        if self._rules.policy.on_open == "bury":
            return Bury("circuit_open", "; ".join([*causes, f"circuit breaker open: {self._rules.breaker}"]))
        return Defer(OPEN_PAUSE_SECONDS * (1 + self._dice()))

    def _decide(self, answer: Outcome, asked: int, *, probe: bool) -> Retry | Bury | Defer:
        """The verdict of the retry policy, with a reason that names the template service."""
        policy = self._rules.policy
        standing = Standing(
            attempt=asked,
            attempts_here=asked,
            max_attempts=policy.budget,
            age_seconds=0.0,
            next_provider=None,
            dice=self._dice(),
            probe=probe,
        )
        match verdict := decide(answer, policy, standing):
            case Retry() | Defer():
                return verdict
            case FailOver(_, delay):
                return Retry(delay)
            case Bury(classification, _):
                return Bury(classification, _reason(answer, asked))
            case Finish() | Skip():
                return Bury("template", "the template service answered nothing")
            case _:
                assert_never(verdict)


def _reason(answer: Outcome, asked: int) -> str:
    if isinstance(answer, Sent):
        return "the template service answered nothing"
    return answer.error if isinstance(answer, Refused) else f"Template Service {answer.error} after {asked - 1} retries"


def read_template(code: str, status: int, body: bytes, retry_after: float | None) -> Template | Outcome:
    """Translate the template service's answer."""
    # A refused token is the same for every message: an outage of the service, not a word about this template.
    if status in _LATER | _TOKEN_REFUSED or status >= _SERVER_ERROR:
        said = f"HTTP {status} (it refuses our token)" if status in _TOKEN_REFUSED else f"HTTP {status}"
        return Unavailable(said, retry_after=retry_after)
    if status != _OK:
        return Refused(f"template {code}: the template service answered HTTP {status}", "template")
    try:
        read = msgspec.json.decode(body, type=_TemplateAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Refused(f"template {code}: the answer of the template service is not a template: {error}", "template")
    if read.type != "push":
        return Refused(f"template {code}: is of the type {read.type[:100]!r}, not push", "template")
    title, text = read.content.title, read.content.body
    if not title or not text:
        return Refused(f"template {code}: has no {'body' if title else 'title'}", "template")
    return Template(
        code=code,
        channel="push",
        locale=read.language,
        text=text,
        subject=title,
        version=read.version,
        template_id=read.id,
        engine=read.engine,
        fields=read.push or {},
        default_variables=read.default_variables or {},
    )


def unreachable(error: str, classification: str) -> Unavailable:
    """The outcome of a request without an answer; it may be repeated."""
    said = "connection timeout" if classification == "timeout" else f"connection failure ({error})"
    return Unavailable(said, classification)
