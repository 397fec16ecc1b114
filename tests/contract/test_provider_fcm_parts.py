"""Pushes with everything that one may carry, checked by the stub against Google's own description of the API."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from carillon.domain.claims import Dispatch
from carillon.domain.content.parts import PushParts
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Sent
from carillon.providers import load
from carillon.providers.fcm.send import Fcm
from carillon.providers.http import HttpClient
from tests.support.dispatches import dispatch, tools
from tests.support.fcm_stub import SERVER_KEY, FcmStub

ALL = PushParts(
    image="https://example.org/i.png",
    action_url="https://example.org/orders/7",
    collapse_key="order-7",
    ttl_seconds=3600,
    badge=3,
    sound="chime",
    channel_id="orders",
    data={"order": "7"},
)
DATA = {"order": "7", "action_url": "https://example.org/orders/7"}


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[FcmStub]:
    with FcmStub(tmp_path / "fcm.jsonl") as stub:
        yield stub


@pytest.fixture
async def v1(stub: FcmStub, http: HttpClient, tmp_path: Path) -> AsyncIterator[Fcm]:
    provider = load("fcm", "fcm", {"base_url": stub.url, "credentials_file": stub.key_file(tmp_path)}, tools(http))
    assert isinstance(provider, Fcm)
    yield provider
    await provider.aclose()


def push(parts: PushParts | None, **fields: Any) -> Dispatch:
    message = Message(text="It is on its way.", subject="Order 7", push=parts)
    return dispatch(address="device-token-of-a-usual-length", payload={}, message=message, channel="push", **fields)


@pytest.mark.req("P-121")
async def test_v1_says_it_to_every_platform(stub: FcmStub, v1: Fcm) -> None:
    assert isinstance(await v1.send(push(ALL)), Sent)
    message = json.loads(stub.sends[0]["body"])["message"]
    assert message["notification"] == {
        "title": "Order 7",
        "body": "It is on its way.",
        "image": "https://example.org/i.png",
    }
    assert message["data"].items() >= DATA.items()
    android = message["android"]
    assert (android["collapse_key"], android["ttl"]) == ("order-7", "3600s")
    assert android["notification"] == {"sound": "chime", "channel_id": "orders", "notification_count": 3}
    apns = message["apns"]
    assert apns["payload"] == {"aps": {"badge": 3, "sound": "chime", "mutable-content": 1}}
    assert apns["fcm_options"] == {"image": "https://example.org/i.png"}
    assert apns["headers"]["apns-collapse-id"] == "order-7"
    assert apns["headers"]["apns-expiration"] == str(1_700_000_000 + 3600)
    assert message["webpush"] == {
        "headers": {"TTL": "3600"},
        "notification": {"image": "https://example.org/i.png", "tag": "order-7"},
        "fcm_options": {"link": "https://example.org/orders/7"},
    }


@pytest.mark.req("P-121")
async def test_the_legacy_form_says_the_same(stub: FcmStub, http: HttpClient) -> None:
    old = load("fcm", "fcm", {"base_url": stub.url, "server_key": SERVER_KEY}, tools(http))
    assert isinstance(await old.send(push(ALL)), Sent)
    said = json.loads(stub.sends[0]["body"])
    assert (said["collapse_key"], said["time_to_live"]) == ("order-7", 3600)
    assert said["data"].items() >= DATA.items()
    assert said["notification"] == {
        "title": "Order 7",
        "body": "It is on its way.",
        "image": "https://example.org/i.png",
        "sound": "chime",
        "android_channel_id": "orders",
        "badge": "3",
        "click_action": "https://example.org/orders/7",
    }


@pytest.mark.req("P-121")
async def test_the_vendor_keeps_nothing_longer_than_it_is_worth_sending(stub: FcmStub, v1: Fcm) -> None:
    await v1.send(push(None, expires_in=90.5))
    await v1.send(push(ALL, expires_in=5.0))
    await v1.send(push(ALL, expires_in=99_999.0))
    await v1.send(push(None))
    kept = [json.loads(entry["body"])["message"].get("android", {}).get("ttl") for entry in stub.sends]
    assert kept == ["90s", "5s", "3600s", None]


async def test_a_link_of_an_app_and_a_long_key_fit_every_platform(stub: FcmStub, v1: Fcm) -> None:
    key = "k" * 100
    assert isinstance(await v1.send(push(PushParts(action_url="/orders/7", collapse_key=key))), Sent)
    message = json.loads(stub.sends[0]["body"])["message"]
    assert message["data"]["action_url"] == "/orders/7"
    assert "fcm_options" not in message["webpush"]
    assert len(message["apns"]["headers"]["apns-collapse-id"]) == 64
    assert message["android"]["collapse_key"] == key
