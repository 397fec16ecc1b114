"""Webhooks started without a task: slots pass from call to call, and each call reports one outcome."""

import asyncio
from typing import Any

import msgspec
import pytest

from carillon.domain.outcomes import Outcome, Sent, Throttled, Unknown
from carillon.providers import load
from carillon.providers.http import HttpClient
from carillon.providers.webhook.send import Webhook
from tests.support.dispatches import LOOPBACK, SECRET, dispatch, tools
from tests.support.vendor import Reply, Vendor


def webhook(http: HttpClient, **options: Any) -> Webhook:
    provider = load("hooks", "webhook", {"secrets": [SECRET], **LOOPBACK, **options}, tools(http))
    assert isinstance(provider, Webhook)
    return provider


class Told:
    """What was told, in its order."""

    def __init__(self) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self._more = asyncio.Event()

    def of(self, name: str) -> Any:
        def tell(outcome: Outcome) -> None:
            assert name not in self.outcomes, "told twice"
            self.outcomes[name] = outcome
            self._more.set()

        return tell

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.outcomes) < count:
                self._more.clear()
                await self._more.wait()


async def test_a_slot_given_up_is_the_next_ones_and_a_place_left_is_passed_over(
    endpoint: Vendor, http: HttpClient
) -> None:
    endpoint.default = lambda entry: Reply(hang="first" in entry["body"])
    provider, told = webhook(http, concurrency_per_endpoint=1, slot_wait_seconds=30.0), Told()
    give_up = [
        provider.start(dispatch(address=endpoint.url, payload={"name": name}), told.of(name))
        for name in ("first", "second", "third")
    ]
    await endpoint.until(1)
    give_up[1]()
    give_up[0]()
    await told.until(1)
    assert told.outcomes == {"third": Sent()}
    give_up[2]()
    give_up[0]()
    assert await provider.send(dispatch(address=endpoint.url)) == Sent()
    assert [entry["body"].count("second") for entry in endpoint.entries] == [0, 0, 0]


async def test_many_that_end_at_once_do_not_end_inside_of_one_another(endpoint: Vendor, http: HttpClient) -> None:
    endpoint.default = lambda _entry: Reply(hang=True)
    provider = webhook(http, concurrency_per_endpoint=1, slot_wait_seconds=60.0, scheme="x-webhook", secrets=["s"])
    told = Told()
    give_up = provider.start(dispatch(address=endpoint.url), told.of("first"))
    await endpoint.until(1)
    for number in range(2000):
        broken = dispatch(address=endpoint.url)
        broken.claim.payload_json = "not JSON"
        provider.start(broken, told.of(str(number)))
    give_up()
    await told.until(2000)
    assert {(type(one), getattr(one, "classification", "")) for one in told.outcomes.values()} == {
        (Unknown, "provider_error")
    }


async def test_a_call_with_less_time_waits_less(endpoint: Vendor, http: HttpClient) -> None:
    endpoint.default = lambda _entry: Reply(hang=True)
    provider, told = webhook(http, concurrency_per_endpoint=1, slot_wait_seconds=0.5), Told()
    give_up = provider.start(dispatch(address=endpoint.url), told.of("first"))
    provider.start(dispatch(address=endpoint.url), told.of("patient"))
    provider.start(dispatch(address=endpoint.url, timeout_seconds=0.1), told.of("hasty"))
    await told.until(2)
    assert list(told.outcomes) == ["hasty", "patient"]
    assert {type(one) for one in told.outcomes.values()} == {Throttled}
    give_up()
    endpoint.default = lambda _entry: Reply(200)
    assert await provider.send(dispatch(address=endpoint.url)) == Sent()


async def test_a_name_is_looked_up_on_the_way(endpoint: Vendor, http: HttpClient) -> None:
    provider, told = webhook(http, allow_hosts=["localhost"], concurrency_per_endpoint=1), Told()
    url = endpoint.url.replace("127.0.0.1", "localhost")
    provider.start(dispatch(address=url), told.of("first"))
    given_up = provider.start(dispatch(address=url), told.of("second"))
    provider.start(dispatch(address=url), told.of("third"))
    given_up()
    await told.until(2)
    assert told.outcomes == {"first": Sent(), "third": Sent()}


async def test_a_lookup_given_up_gives_its_slot_back(endpoint: Vendor, http: HttpClient) -> None:
    provider, told = webhook(http, allow_hosts=["localhost"], concurrency_per_endpoint=1), Told()
    url = endpoint.url.replace("127.0.0.1", "localhost")
    provider.start(dispatch(address=url), told.of("first"))()
    assert await provider.send(dispatch(address=url)) == Sent()
    assert not told.outcomes


async def test_a_reply_nobody_can_judge_gives_its_slot_back(
    endpoint: Vendor, http: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = webhook(http, concurrency_per_endpoint=1)

    def broken(_reply: object) -> Outcome:
        raise IndexError("a bug of the adapter")

    with monkeypatch.context() as patched:
        rules = msgspec.structs.replace(provider._rules, judge=broken)  # noqa: SLF001 - the provider's own judge
        patched.setattr(provider, "_rules", rules)
        found = await provider.send(dispatch(address=endpoint.url))
    assert isinstance(found, Unknown)
    assert found.classification == "provider_error"
    assert await provider.send(dispatch(address=endpoint.url)) == Sent()
