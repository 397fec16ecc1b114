"""Finding a provider by its kind, and saying clearly what is wrong with its settings."""

import pickle
import sys

import msgspec
import pytest

from carillon.domain.errors import ConfigurationError
from carillon.providers import Secret, Tools, channels, kinds, load
from carillon.providers.http import HttpClient
from carillon.providers.tools import decode_secret
from tests.support.dispatches import LoopClock


@pytest.fixture
def tools() -> Tools:
    return Tools(LoopClock(), lambda: 0.5, HttpClient())


def test_every_file_of_a_kind_is_found() -> None:
    assert {"apprise", "sandbox", "smtp", "webhook"} <= set(kinds())
    assert not {"http", "egress", "guard", "secret", "smtp_message", "webhook_signing"} & set(kinds())


@pytest.mark.parametrize(
    "kind", ["nonsense", "", "../sandbox", "os.path", "Sandbox", "http", "sandbox.create", "x" * 999]
)
def test_an_unknown_kind_lists_the_known_ones(kind: str, tools: Tools) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^providers\.name\.kind: no provider kind .*known: .*sandbox, .*smtp"
    ) as e:
        load("name", kind, {}, tools)
    assert len(str(e.value)) < 300


def test_a_missing_extra_is_named(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    monkeypatch.delitem(sys.modules, "carillon.providers.apprise", raising=False)
    with pytest.raises(ConfigurationError) as missing:
        load("others", "apprise", {}, tools)
    assert str(missing.value) == (
        "providers.others.kind: 'apprise' needs the package 'apprise'; pip install 'carillon[apprise]'"
    )
    assert "apprise" in kinds()


def test_channels() -> None:
    assert channels("sandbox") is None
    assert channels("smtp") == frozenset({"email"})


def test_options_may_come_as_text(tools: Tools) -> None:
    load("box", "sandbox", {"delay_seconds": "1.5", "keep": "10"}, tools)


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret("hunter2")
    holder = msgspec.convert(
        {"word": "hunter2"}, msgspec.defstruct("Holder", [("word", Secret)]), dec_hook=decode_secret
    )
    for shown in (repr(secret), str(secret), f"{secret}", repr([secret]), repr(holder)):
        assert "hunter2" not in shown
    assert secret == Secret("hunter2") != Secret("hunter3")
    assert len({secret, Secret("hunter2")}) == 1
    assert secret.reveal() == "hunter2"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
