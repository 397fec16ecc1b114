"""Every regular expression of the package takes linear time: hostile text of its longest size costs milliseconds."""

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import carillon
from carillon.domain.errors import BadTemplate
from carillon.intake.render import check_template
from carillon.upkeep.logs.redaction import _PATTERNS
from carillon.web.endpoint import _pattern
from tests.support import patterns
from tests.support.declared import declared
from tests.support.patterns import Place

KIB = 1024


@cache
def limit_seconds() -> float:
    """In the time of this machine: a multiple of what a linear expression takes for a text of the same size."""
    linear = re.compile(r"[=(]\s*+y")
    return max(0.05, 12 * min(patterns.seconds(linear, "finditer", "=" * 256 * KIB) for _ in range(5)))


LONGEST: dict[int, str] = {
    # A vendor's callback; `json_elements` leaves a broken one with more marks than this alone.
    1024 * KIB: "border._UNSTORABLE",
    150_000: "border._TOKEN",
    # One text of a body or of a broker's message, which may be nearly all of it.
    256 * KIB: """
        blueprints.billing.payment_api._KEY blueprints.billing.payment_api.Name blueprints.billing.payment_api.Digits
        blueprints.billing.payment_api.Tenant blueprints.billing.payment_api.Word
        blueprints.billing.subscription_api._KEY blueprints.billing.subscription_api.Name
        blueprints.billing.subscription_api.Tenant blueprints.push_worker.wire._LANGUAGE blueprints.sse.wire._WORD
        blueprints.sse.wire._BEYOND_MICROSECONDS border._SURROGATES domain.addresses._PHONE domain.addresses._TOKEN
        domain.addresses._LOCAL domain.addresses._LABEL domain.addresses._CONTROL
        domain.content.calendar._UNFIT domain.jobs._APPENDED
        domain.content.mail._CONTENT_ID domain.content.mail._HEADER domain.content.mail._HEADER_VALUE
        domain.content.mail._NEVER
        domain.content.mail.Attachment.filename domain.content.mail.Attachment.content_type
        domain.content.mail.Invitation.uid
        domain.content.mail.Invitation.url domain.content.parts._LINK domain.content.parts._RESERVED
        domain.content.parts.InAppAction.label
        domain.content.parts.Word domain.synchronous._SEPARATORS
        domain.templates.unfit_name/1 domain.templates.unfit_name/2 domain.templates._TAG
        domain.templates._UNKNOWN domain.templates._UNWRITTEN
        doors.http.wire.TemplateKey doors.http.wire.Origin doors.http.wire.Tenant doors.http.wire.UserId
        doors.http.wire.Address doors.http.wire.Locale doors.http.wire.Correlation doors.http.wire.Key
        doors.http.wire._KEY doors.messages._CORRELATION doors.redis_stream.offset._ID intake.directory._ADDRESS
        intake.render._NAME intake.links._SCRIPTED intake.links._UNSAFE intake.jinja.scan._OPENS
        intake.links._SCRIPTED_IN_LIST intake.links._UNSAFE_IN_LIST intake.links._ENCODED
        intake.markup._OPENS intake.markup._ELEMENT intake.markup._ATTRIBUTE intake.markup._BETWEEN
        intake.markup._BARE_END intake.markup._SPACED intake.markup._NAMED intake.markup._RUNS intake.markup._SKIPPED
        intake.jinja.mjml._POSITION intake.jinja.mjml._BEGUN intake.jinja.mjml._MARKUP intake.jinja.mjml._SHOWN
        intake.jinja.scan._TOKEN
        intake.jinja.scan._RAW intake.jinja.scan._END_RAW intake.jinja.engine._PATH intake.jinja.engine._NAMED
        intake.jinja.engine._USED intake.jinja.engine._INNER web.endpoint._SLASH
        intake.jinja.catalogues._NAMED intake.jinja.mail._HOLDER intake.jinja.mail._OPENED intake.jinja.mail._STYLE
        intake.jinja.mail._TABLE intake.jinja.mail._SPACES intake.jinja.mail._ELEMENT intake.jinja.mail._SAID
        intake.jinja.mail._REFERENCE intake.jinja.mail._ENDING
        intake.jinja.mail._MANY intake.jinja.scan._Lines.__init__/1
        intake.jinja.guard._WHOLE intake.jinja.guard._OPENED
        providers.egress._URL providers.egress._REST providers.egress._BRACKETED
        providers.egress._PLAIN providers.egress._LABEL providers.egress._NUMBER providers.egress._ipv4/1
        providers.fcm.send._DEVICE providers.fcm.send._RESERVED providers.http._SAFE_ID providers.mail._LINE_BREAKING
        providers.mail._ATOM providers.mail._HEADER_NAME providers.mail._LABEL providers.mail._TOKEN
        providers.sns._NUMBER
        providers.twilio.send._NUMBER providers.webhook.send._HEADER_NAME providers.webhook.send._HEADER_VALUE
        providers.webhook.send._OURS receipts.suppressions.Word receipts.suppressions.Address
        receipts.suppressions.Tenant receipts.suppressions.Reason receipts.suppressions.Moment
        upkeep.api.admin_wire.ProviderName upkeep.api.notifications_wire.Text upkeep.api.notifications_wire.Id
        upkeep.api.notifications_wire.Reason upkeep.api.notifications_wire.Include
        upkeep.api.notifications_wire.Moment upkeep.api.dead_letters_wire.RedriveBody.provider
        upkeep.api.preferences.Locale upkeep.api.preferences.Time upkeep.api.preferences.Zone
        upkeep.api.preferences.TenantId upkeep.api.queues_wire.Name upkeep.api.queues_wire.Reason
        upkeep.api.templates_wire.TemplateKey upkeep.api.templates_wire.Locale upkeep.api.templates_wire.Subject
        upkeep.api.templates_wire.Name upkeep.api.templates_wire.TenantId upkeep.api.templates_wire.Truth
        config.checks._PAGE_URL config.checks._COLOUR upkeep.consent.api._TIME upkeep.consent.api._ONE_CLICK_PART
        domain.timing._KEY
        domain.content.wishes.CollapseKey
        domain.rights._patterns/1 web.guard._UNFIT
        domain.consent._NAME upkeep.api.preferences.CategoryName domain.content.wishes.CategoryName
        upkeep.api.templates_wire.CategoryName
        upkeep.api.preferences.QuietBody.holidays
    """,
    # A head of a request or of an answer, a query, a path, a vendor's answer, a token.
    64 * KIB: """
        blueprints.billing.webhooks._HEADER blueprints.push_worker.wire._HTTP_CODE border._PLACE border._UNKNOWN
        border._OF_A_KEY border._STEP domain.alerts._EXHAUSTED intake.links._LINK_NAME
        intake.links._LIST_NAME
        doors.http.wire._QUOTED doors.http.wire._plain_key/1
        ledger.sealing._PERSONAL live.endpoints._NUMBER providers.answers._CLASS
        providers.answers._LOOKS_LIKE_A_STATUS providers.answers._STATUS providers.fcm.token._HEADER_TEXT
        providers.fcm.send._ABOUT_A_DEVICE
        providers.http._TOKEN providers.http._VALUE providers.http._SECONDS providers.mail.slug/1
        providers.mail.slug/2 providers.sendgrid.receipts._SECONDS providers.sns._ABOUT_THE_NUMBER
        providers.sns._element/1 providers.twilio.receipts._URL providers.twilio.receipts._ORIGIN
        providers.twilio.receipts._SID providers.twilio.receipts._CODE providers.webhook.signing._TIMESTAMP
        providers.webhook.signing._HEX_DIGEST upkeep.api.templates_wire._ID upkeep.metrics.otlp._TRACE
        upkeep.metrics.otlp._TRACEPARENT web.auth.TENANT web.auth._FORM web.auth._NAMED web.endpoint._UNFIT
        web.endpoint._pattern/2 web.http_connection._ABSOLUTE web.http_exchange._AMBIGUOUS web.http_exchange._CHUNK
        web.http_exchange._LENGTH
        web.request._UTF8 border._MESSAGE border._NAMED web.request._CORRELATION web.request._TRACEPARENT
        web.tokens.KID web.tokens._SUBJECT
        web.paging._UNFIT web.paging.Cursor upkeep.console.history.Name upkeep.console.history.Moment
        upkeep.api.admin._NUMBER
    """,
    # An error, before it is written down.
    4000: "ledger.sealing._without/1",
    # One value of a log line.
    12_500: """
        upkeep.logs.redaction._TRIGGER upkeep.logs.redaction._PATTERNS upkeep.logs.redaction._PHONE
        upkeep.logs.redaction._CARD upkeep.logs.redaction._UNPRINTABLE upkeep.logs.redaction.Redaction._rule/1
        upkeep.logs.redaction._mask_digits/1 upkeep.logs.redaction._hide_card/1 upkeep.logs.redaction._hide_card/2
    """,
    # What the operator writes: settings, catalogues, arguments; and files of the package.
    2000: """
        blueprints.galaxy.catalogue._TYPE blueprints.galaxy.catalogue._NAME blueprints.galaxy.catalogue._LOCAL
        blueprints.galaxy.catalogue._LABEL blueprints.galaxy.producing._PLAIN cli.dead_letters.per_second/1
        config.checks._EMAIL config.checks._check_neighbours/1 config.checks._check_addresses/1
        config.checks._check_addresses/2 config.checks._check_addresses/3
        config.environment._STEP config.environment._WHERE config.environment.duration/1 config.environment._seconds/1
        config.environment._whole/1 config.policies._NOT_IN_VARIABLES config.reading._SECRET_NAME
        config.reading._PATH_OF_SECRETS config.reading._PASSWORD config.reading._USERINFO config.reading._PARAMETER
        config.reading._PATH config.reading._FIELD config.reading._MEANT config.reading.blueprint_folder/1
        domain.timing._ISO domain.timing._PART domain.timing._SHORT domain.timing._seconds/1
        cli.galaxy._PLACE compose.messages._COUNTRY domain.digests._SAID
        upkeep.console.joined._IMPORT upkeep.console.joined._EXPORT upkeep.console.joined._LATER
        upkeep.console.joined._LEFT upkeep.console.joined._SHEET
        patterns._SAID patterns._WHOLE patterns._STEP
        cli._TYPE cli.options._SEVERAL_WORDS config.checks._CALENDAR config.checks._ENDPOINT
        upkeep.rehearsals.plan._SHARE upkeep.rehearsals.plan._PART upkeep.rehearsals.plan._RATE
        ledger.adoption._ADOPTS ledger.adoption._COLUMN ledger.adoption._CREATED ledger.adoption._LENGTH
        ledger.adoption._MADE ledger.adoption._WIDENED ledger.adoption._split/1 ledger.migrate._BESIDE_OTHERS
        ledger.adoption._COPIES ledger.adoption._NEEDED ledger.adoption._UNIQUE
        ledger.migrate._PART ledger.statements._CHOICE ledger.statements.without/1 ledger.tidying._DROPPED
        ledger.migrate._FILE ledger.migrate._ONLINE
        ledger.postgres.pools._SCHEMA ledger.statements._NAME ledger.statements._PARAMETER
        providers._KIND providers._PATH providers._UNKNOWN_FIELD providers._MISSING_FIELD providers.answers.Word
        providers.egress._own/1 providers.fcm.send._PROJECT providers.fcm.send._KEY providers.sendgrid.send._EPOCH
        providers.sns.Settings.region providers.sns.Settings.access_key_id providers.sns.Settings.endpoint_url
        providers.sns.Settings.sender_id providers.twilio.send.Url providers.twilio.send.Settings.account_sid
        providers.twilio.send.Settings.status_callback providers.twilio.send.Settings.callback_key
        upkeep.history.copier._NAME web.endpoint._pattern/1 web.tokens._PERIODS web.tokens.secret_key/1
    """,
}
SIZES = {name: size for size, names in LONGEST.items() for name in names.split()}

MADE = {
    # Expressions that a function makes of its arguments: what they look like.
    "domain.rights._patterns/1": [re.compile(rf"(?<![\w@.+-]){re.escape('a' * 60)}(?![\w@+-]|\.\w)")],
    "ledger.statements.without/1": [
        re.compile("^-- caps\\n.*?^-- end of caps\\n", re.MULTILINE | re.DOTALL),
    ],
    "ledger.sealing._without/1": [re.compile(re.escape("a" * 300 + "b"), re.IGNORECASE)],
    "providers.sns._element/1": [re.compile(r"<Code>([^<]{1,2000})</Code>")],
    "upkeep.logs.redaction._PATTERNS": [pattern for _, pattern, _ in _PATTERNS],
    "web.endpoint._pattern/2": [_pattern(one.path) for one in declared() if "{" in one.path],
}


@cache
def places() -> dict[str, Place]:
    """Read when the first test asks: collecting tests does not need it."""
    return {place.name: place for place in patterns.places("carillon", Path(carillon.__file__).parent)}


def test_every_expression_is_listed_with_its_longest_text() -> None:
    assert set(SIZES) == set(places())


def _compiled(place: Place) -> "list[re.Pattern[Any]]":
    return MADE.get(place.name) or [patterns.compiled(place)]


POSSESSIVE_GROUPS = {
    "border._TOKEN": "a part that failed ends at a backslash, and what follows allows one at the end of the text",
    "intake.jinja.scan._TOKEN": "a part that failed ends at a backslash, where no quote follows either way",
    "intake.jinja.guard._WHOLE": "a part that failed ends at the end of the text, where no > follows either way",
}
"""Python 3.11.2, which is Debian 12's, goes on from where the last, failed repetition stopped: here that is all one."""


@pytest.mark.req("P-981")
def test_no_group_is_repeated_possessively() -> None:
    """Write `(?>(?:x)*)`, which every Python reads alike, instead of `(?:x)*+`."""
    found = {name for name, place in places().items() for each in _compiled(place) if _repeats_a_group(each.pattern)}
    assert found == POSSESSIVE_GROUPS.keys()


def _repeats_a_group(pattern: str | bytes) -> bool:
    written = pattern.decode() if isinstance(pattern, bytes) else pattern
    return re.search(r"(?<!\\)\)(?:[*+?]|\{[0-9,]+\})\+", written) is not None


@pytest.mark.parametrize("written", [r"(?:a|b)*+", r"(a)++", r"(?:ab){2,}+", r"(ab)?+"])
def test_control_a_possessive_group_is_seen(written: str) -> None:
    assert _repeats_a_group(written)
    assert not _repeats_a_group(written[:-1])


@pytest.mark.slow
def test_no_module_holds_an_expression_that_the_source_does_not_show() -> None:
    known = {pattern.pattern for place in places().values() for pattern in _compiled(place)}
    for module in pkgutil.walk_packages(carillon.__path__, "carillon."):
        if module.name.endswith(("__main__", ".django", ".apps", ".models")) or ".django" in module.name:
            continue
        try:
            held = vars(importlib.import_module(module.name))
        except ModuleNotFoundError:
            continue
        for found in _patterns(list(held.values()), 0):
            assert found.pattern in known, module.name


def _patterns(value: object, depth: int) -> "Iterator[re.Pattern[Any]]":
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, list | tuple | set | frozenset | dict) and depth < 4:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _patterns(inner, depth + 1)


@pytest.mark.parametrize("name", SIZES)
def test_hostile_text_costs_little(name: str) -> None:
    place = places()[name]
    for pattern in _compiled(place):
        took, said = patterns.slowest(pattern, place.methods, SIZES[name])
        assert took < limit_seconds(), f"{pattern.pattern!r}: {said} took {took * 1000:.0f} ms"


@pytest.mark.parametrize(
    ("quadratic", "method"),
    [
        (r"\{\{(.*?)\}\}", "finditer"),
        (r"[a-z]+://", "sub"),
    ],
)
def test_control_an_expression_of_quadratic_time_is_found(quadratic: str, method: str) -> None:
    took, said = patterns.slowest(re.compile(quadratic, re.DOTALL), [method], 32 * KIB)
    assert took >= limit_seconds(), said


def test_a_template_of_openings_only_is_read_at_once() -> None:
    for text in ("{{" * 15_000, "{{" * (128 * KIB), "{{a}}{{" * 30_000):
        began = time.process_time()
        with pytest.raises(BadTemplate):
            check_template(text)
        assert time.process_time() - began < limit_seconds()
