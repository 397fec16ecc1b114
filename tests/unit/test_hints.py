"""What was probably meant, added to what msgspec says."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from carillon.border import hint
from carillon.config.reading import load
from carillon.domain.errors import ConfigurationError
from carillon.doors.http.wire import BatchBody, SendBody
from carillon.web.problems import Problem
from carillon.web.request import convert


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
        ({"level": "lo"}, "; it is one of low, high"),
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
    with pytest.raises(Problem, match="did you mean `recipient`"):
        convert({"notifications": [{"templateKey": "welcome", "recipent": "d"}]}, BatchBody)


def test_a_settings_slip_is_answered_with_its_variable() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean `ledger\.url` \(CARILLON_LEDGER__URL\)\?"):
        load("local", None, {"CARILLON_LEDGER_URL": "sqlite:///x.db"})
    with pytest.raises(ConfigurationError, match=r"ledger\.ulr: .*; did you mean `url`\?$"):
        load("local", None, {"CARILLON_LEDGER__ULR": "sqlite:///x.db"})
