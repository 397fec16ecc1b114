"""The Apprise provider with its json target on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from carillon.domain.errors import ConfigurationError
from carillon.domain.outcomes import Refused, Sent, Unavailable, Unknown
from carillon.domain.ports import Provider
from carillon.providers import load
from carillon.providers.http import HttpClient
from tests.support.dispatches import dispatch, tools
from tests.support.vendor import Reply, Vendor

# Apprise loads every plugin at once, one of which still asks for a module that Python is retiring.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

Make = Callable[..., Provider]


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Vendor]:
    with Vendor(tmp_path / "vendor.jsonl") as vendor:
        yield vendor


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Provider] = []

    def apprise(**options: Any) -> Provider:
        made.append(load("others", "apprise", options, tools(HttpClient())))
        return made[-1]

    yield apprise
    for provider in made:
        await provider.aclose()


async def test_a_message_arrives(vendor: Vendor, make: Make) -> None:
    provider = make(url=f"json://127.0.0.1:{vendor.port}/fixed")
    assert await provider.send(dispatch()) == Sent()
    [entry] = vendor.entries
    body = json.loads(entry["body"])
    assert (entry["path"], body["title"], body["message"]) == ("/fixed", "Table 7", "Your table is ready.")


async def test_the_address_can_be_part_of_the_url(vendor: Vendor, make: Make) -> None:
    provider = make(url=f"json://127.0.0.1:{vendor.port}/to/{{address}}")
    assert await provider.send(dispatch(address="a/b")) == Sent()
    assert vendor.entries[0]["path"].startswith("/to/a")
    assert "?" not in vendor.entries[0]["path"]
    assert isinstance(await provider.send(dispatch(address=None)), Refused)


async def test_a_recipients_own_url_needs_its_scheme_opened(vendor: Vendor, make: Make) -> None:
    address = f"json://127.0.0.1:{vendor.port}/own"
    assert await make(recipient_schemes=["json"]).send(dispatch(address=address)) == Sent()
    strict = make(recipient_schemes=["tgram"])
    for refused in (address, "nonsense", "://", None, "tgram://", "tgram://x"):
        assert isinstance(await strict.send(dispatch(address=refused)), Refused)
    assert len(vendor.entries) == 1


async def test_failures_and_silence(vendor: Vendor, make: Make) -> None:
    vendor.answer(Reply(500), Reply(302, {"Location": f"{vendor.url}/elsewhere"}), Reply(hang=True))
    provider = make(url=f"json://127.0.0.1:{vendor.port}/")
    assert isinstance(await provider.send(dispatch()), Unavailable)
    assert isinstance(await provider.send(dispatch()), Unavailable)
    assert isinstance(await provider.send(dispatch(timeout_seconds=3.0)), Unknown)
    assert [entry["path"] for entry in vendor.entries] == ["/"] * 3


async def test_a_call_that_never_began_was_not_sent(vendor: Vendor, make: Make) -> None:
    vendor.answer(Reply(hang=True))
    provider = make(url=f"json://127.0.0.1:{vendor.port}/", threads=1)
    first = asyncio.create_task(provider.send(dispatch(timeout_seconds=5.0)))
    await vendor.until(1)
    assert isinstance(await provider.send(dispatch(timeout_seconds=0.1)), Unavailable)
    assert isinstance(await first, Unknown)
    assert len(vendor.entries) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "providers.others: url: an Apprise URL is needed"),
        ({"url": "nonsense://hunter2"}, "providers.others: url: Apprise does not understand"),
        ({"url": "json://x", "threads": 0}, "providers.others.threads: "),
    ],
)
def test_wrong_settings_are_named(options: dict[str, Any], message: str, make: Make) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        make(**options)
    assert str(wrong.value).startswith(message)
    assert "hunter2" not in str(wrong.value)


def test_the_url_never_shows(make: Make) -> None:
    provider = make(url="json://user:hunter2@127.0.0.1/")
    assert "hunter2" not in f"{provider!r} {vars(provider)!r}"
