"""What was probably meant, added to what msgspec says."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

import carillon
from carillon.border import hint
from carillon.config.reading import load
from carillon.domain.errors import ConfigurationError
from carillon.doors.http.wire import BatchBody, SendBody
from carillon.patterns import in_words, words_of
from carillon.providers import Tools
from carillon.providers import load as load_provider
from carillon.providers.http import HttpClient
from carillon.upkeep.api.preferences import PreferencesBody
from carillon.upkeep.api.templates_wire import TemplateBody
from carillon.web.problems import Problem
from carillon.web.request import convert
from tests.support import patterns
from tests.support.dispatches import LoopClock


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    url: str = ""
    colour: Colour | None = None


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    ledger: Inner = msgspec.field(default_factory=Inner)
    by_name: dict[str, Inner] | None = None
    several: Annotated[list[Inner], msgspec.Meta(max_length=9)] = []
    by_colour: dict[Colour, int] = {}
    level: Literal["low", "high"] = "low"
    either: int | str = 0


@pytest.mark.parametrize(
    ("value", "added"),
    [
        ({"ledgr": {}}, "; did you mean `ledger`?"),
        ({"ledger_ulr": ""}, "; did you mean `ledger.url`?"),
        ({"ledger": {"ulr": ""}}, "; did you mean `url`?"),
        ({"by_name": {"x": {"ulr": ""}}}, "; did you mean `url`?"),
        ({"several": [{}, {"color": "red"}]}, "; did you mean `colour`?"),
        ({"ledger": {"colour": "rde"}}, "; it is one of red, blue"),
        ({"by_name": {"x": {"colour": "rde"}}}, "; it is one of red, blue"),
        ({"by_colour": {"rde": 1}}, "; it is one of red, blue"),
        ({"level": "lo"}, "; it is one of low, high"),
        ({"sev": []}, "; did you mean `several`?"),
        ({"by_": {}}, "; did you mean `by_name`?"),
        ({"le": {}}, ""),
        ({"quite_another": 1}, ""),
        ({"either": []}, ""),
        ({"ledger": []}, ""),
    ],
)
def test_what_was_meant_is_added(value: dict[str, Any], added: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(value, Outer)
    assert hint(str(refused.value), Outer) == added


@pytest.mark.parametrize("kind", [int, dict[str, int], list, None, SendBody])
def test_a_place_that_is_not_there_has_no_hint(kind: object) -> None:
    assert hint("Invalid enum value 'x' - at `$.a[0].b[...].c`", kind) == ""


def test_a_senders_slip_is_answered_with_the_right_word() -> None:
    with pytest.raises(Problem) as refused:
        convert({"templateKey": "welcome", "channel": "psuh"}, SendBody)
    right = "email, inApp, push, sms, webhook"
    assert set(str(refused.value).partition("one of ")[2].split(", ")) >= set(right.split(", "))
    with pytest.raises(Problem, match="did you mean `htmlTemplate`"):
        convert({"templateKey": "welcome", "channel": "email", "html": "<p>Hi</p>"}, TemplateBody)
    with pytest.raises(Problem, match="did you mean `recipient`"):
        convert({"notifications": [{"templateKey": "welcome", "recipent": "d"}]}, BatchBody)


def test_every_pattern_of_a_field_is_told_in_words() -> None:
    places = patterns.places("carillon", Path(carillon.__file__).parent)
    of_fields = [place for place in places if place.of_a_field]
    assert len(of_fields) > 30
    untold = [place.name for place in of_fields if words_of(patterns.compiled(place).pattern) is None]
    assert untold == []


@pytest.mark.req("P-670")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"recipient": ""}, "Expected 1 to 2,000 characters without spaces and control characters at recipient"),
        ({"collapseKey": "a\tb"}, "Expected 1 to 255 characters without control characters at collapseKey"),
        ({"tenantId": "a b"}, "Expected 1 to 64 letters, digits and . _ : - at tenantId"),
        ({"category": "Orders"}, "Expected 1 to 64 small letters, digits and . _ -; the first is one of small letters"),
        ({"locale": "English"}, "Expected a locale such as en-US at locale"),
        ({"idempotencyKey": "k"}, "it is the header `Idempotency-Key`"),
    ],
)
def test_a_refusal_names_what_is_wanted_and_shows_no_expression(body: dict[str, Any], said: str) -> None:
    with pytest.raises(Problem) as refused:
        convert({"templateKey": "welcome", **body}, SendBody)
    assert said in str(refused.value)
    assert "regex" not in str(refused.value)


def test_a_wrong_key_of_an_object_is_named_with_its_place() -> None:
    with pytest.raises(Problem) as refused:
        convert({"categories": {"orders": {"fax": True}}}, PreferencesBody)
    assert str(refused.value).startswith("Invalid enum value 'fax' at categories[...]; it is one of ")


def test_an_expression_that_the_caller_quotes_stays_as_it_is() -> None:
    quoted = "Invalid enum value 'Expected `str` matching regex '\\x''"
    assert in_words(quoted) == quoted


@pytest.mark.req("P-670")
def test_the_options_of_a_provider_are_answered_as_other_settings_are() -> None:
    tools = Tools(LoopClock(), lambda: 0.5, HttpClient())
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    with pytest.raises(
        ConfigurationError, match=r"providers\.us\.region: Expected 1 to 40 small letters, digits and -$"
    ):
        load_provider("us", "sns", {"region": "EU West", **keys}, tools)
    with pytest.raises(ConfigurationError, match=r"; did you mean `sender_id`\?$"):
        load_provider("us", "sns", {"region": "eu-west-1", "senderid": "x", **keys}, tools)


def test_a_settings_slip_is_answered_with_its_variable() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean `ledger\.url` \(CARILLON_LEDGER__URL\)\?"):
        load("local", None, {"CARILLON_LEDGER_URL": "sqlite:///x.db"})
    with pytest.raises(ConfigurationError, match=r"ledger\.ulr: .*; did you mean `url`\?$"):
        load("local", None, {"CARILLON_LEDGER__ULR": "sqlite:///x.db"})
