"""A vendor with few connections: claims wait for them in the process, for a moment, and harm nobody."""

import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import carillon
from carillon.client import Item
from carillon.compose.ledger import LedgerPart
from carillon.embedded import Embedded
from tests.support.vendor import Entry, Reply, Vendor
from tests.support.waiting import until

SLOTS, FLOOD = 10, 400
SENT = {"sid": "SM00000000000000000000000000000000", "status": "queued"}
SETTINGS = """extends = "local"
[channels]
sms = ["twilio"]
[work]
poll_seconds = 0.05
first_claims = 1000
max_in_flight = { twilio = 10 }
[providers.twilio]
kind = "twilio"
account_sid = "AC0"
auth_token = "a token of this test"
sender = "+15005550006"
base_url = "URL"
[policy.retry."*/sms"]
max_attempts = 3
timeout_seconds = 20
"""


class Crowded(Vendor):
    """Counts the calls that it answers at once."""

    now = most = 0

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await super()._handle(request)
        finally:
            self.now -= 1


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Crowded]:
    with Crowded(tmp_path / "twilio.jsonl") as stub:
        stub.default = Reply(status=201, body=SENT, delay=0.01)
        yield stub


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, vendor: Crowded) -> Embedded:
    return _opened(request, tmp_path, SETTINGS.replace("URL", vendor.url), request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def patient(request: pytest.FixtureRequest, tmp_path: Path, vendor: Crowded) -> Embedded:
    """Looks for work every ten minutes by itself."""
    return _opened(request, tmp_path, SETTINGS.replace("URL", vendor.url).replace("= 0.05", "= 600"), request.param)


def _opened(request: pytest.FixtureRequest, tmp_path: Path, settings: str, engine: str) -> Embedded:
    (tmp_path / "c.toml").write_text(settings)
    where = tmp_path / "app.db" if engine == "sqlite" else request.getfixturevalue("postgres_dsn")
    environ = {"CARILLON_LEDGER__ALLOW_UNSAFE": "1"}
    return carillon.open(str(where), config=tmp_path / "c.toml", environ=environ)


def text(to: int, **about: Any) -> Item:
    data = {"name": str(to), "link": "https://example.org/"}
    return Item(template_key="welcome", channel="sms", recipient=f"+49151{to:08d}", data=data, **about)


async def flood(engine: Embedded) -> list[str]:
    answers = await engine.send_many([text(to, is_bulk=True) for to in range(FLOOD)])
    return [str(one.notification_id) for one in answers]


@pytest.mark.req("P-1087")
async def test_every_message_goes_once_and_never_beside_too_many(opened: Embedded, vendor: Crowded) -> None:
    async with opened as engine:
        for name in await flood(engine):
            assert (await engine.wait(name, 60)).status == "delivered"
    assert vendor.most <= SLOTS
    assert Counter(entry["body"] for entry in vendor.entries).most_common(1)[0][1] == 1
    assert len(vendor.entries) == FLOOD


@pytest.mark.req("P-1087")
async def test_a_vendor_that_stalls_gives_up_what_waits_and_an_urgent_message_still_goes(
    opened: Embedded, vendor: Crowded
) -> None:
    gate = threading.Event()
    async with opened as engine:
        ledger = engine.program.part(LedgerPart).ledger
        names = await flood(engine)

        async def under_way() -> bool:
            return len(vendor.entries) > FLOOD // 4

        await until(under_way, timeout=30, what="calls")
        vendor.default = Reply(status=201, body=SENT, gate=gate)

        async def stalled() -> bool:
            return vendor.now >= SLOTS - 1 and int((await ledger.counts())["leased"]) < SLOTS

        await until(stalled, timeout=10, what="a vendor that stalls, with nothing waiting for it in the process")
        vendor.default = Reply(status=201, body=SENT)
        urgent = await engine.send_item(text(99_999_999, priority="high"))
        assert (await engine.wait(urgent.notification_id, 30)).status == "delivered", "a slot is kept free for it"
        gate.set()
        for name in names:
            assert (await engine.wait(name, 60)).status == "delivered"
    assert len(vendor.entries) == FLOOD + 1


@pytest.mark.req("P-1164")
async def test_the_end_of_a_call_is_reason_to_claim_the_next_message(patient: Embedded, vendor: Crowded) -> None:
    async with patient as engine:
        for name in await flood(engine):
            assert (await engine.wait(name, 60)).status == "delivered"
    assert vendor.most <= SLOTS


@pytest.mark.req("P-1165")
@pytest.mark.parametrize("slots", [10, 48])
@pytest.mark.parametrize("engine_name", ["sqlite", "postgres"])
async def test_a_flood_in_one_lane_leaves_the_next_lane_its_share(
    request: pytest.FixtureRequest, tmp_path: Path, vendor: Crowded, engine_name: str, slots: int
) -> None:
    """Calls of different lengths: connections become free one by one, and the flood waits for each of them."""
    late = 50_000_000

    def varied(entry: Entry) -> Reply:
        number = int(re.findall("49151([0-9]+)", entry["body"])[0])
        return Reply(status=201, body=SENT, delay=(1 + number % 9) * slots / 500)

    vendor.default = varied
    items = [text(to) for to in range(FLOOD)] + [text(late + to, is_bulk=True) for to in range(SLOTS)]
    settings = SETTINGS.replace("URL", vendor.url).replace("twilio = 10", f"twilio = {slots}")
    async with _opened(request, tmp_path, settings, engine_name) as engine:
        for answer in await engine.send_many(items):
            assert (await engine.wait(str(answer.notification_id), 60)).status == "delivered"
    bulk = [place for place, entry in enumerate(vendor.entries) if f"49151{late // 10**7}" in entry["body"]]
    assert len(bulk) == SLOTS
    assert bulk[-1] < FLOOD * 3 // 4, "not behind the whole flood"


CHAIN = """extends = "local"
[channels]
sms = ["first", "second"]
[work]
poll_seconds = 0.05
first_claims = 1000
max_in_flight = { first = 2, second = 10 }
[policy.breaker.first]
failure_threshold = 3
open_seconds = 600
[policy.retry."*/sms"]
max_attempts = 5
failover_after_attempts = 1
base_delay_seconds = 0.0
jitter = "none"
timeout_seconds = 20
"""
ACCOUNT = """[providers.NAME]
kind = "twilio"
account_sid = "AC0"
auth_token = "a token of this test"
sender = "+15005550006"
base_url = "URL"
"""


class Pair:
    """A vendor that is down, the one that is called instead, and an engine that uses both."""

    def __init__(self, down: Crowded, instead: Crowded, folder: Path, where: str) -> None:
        self.down, self.instead = down, instead
        self._folder, self._where = folder, where

    def open(self) -> Embedded:
        text = CHAIN
        for name, vendor in (("first", self.down), ("second", self.instead)):
            text += ACCOUNT.replace("NAME", name).replace("URL", vendor.url)
        (self._folder / "c.toml").write_text(text)
        environ = {"CARILLON_LEDGER__ALLOW_UNSAFE": "1"}
        return carillon.open(self._where, config=self._folder / "c.toml", environ=environ)


@pytest.fixture(params=["sqlite", "postgres"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, vendor: Crowded) -> Iterator[Pair]:
    where = str(tmp_path / "app.db") if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")
    with Crowded(tmp_path / "down.jsonl") as down:
        down.default = Reply(status=503)
        yield Pair(down, vendor, tmp_path, where)


@pytest.mark.req("P-1160")
async def test_a_vendor_that_is_called_instead_gets_all_the_calls_that_it_bears(pair: Pair) -> None:
    gate = threading.Event()
    async with pair.open() as engine:
        pair.instead.default = Reply(status=201, body=SENT, gate=gate)
        names = await flood(engine)

        async def busy() -> bool:
            return pair.instead.now >= SLOTS - 1

        await until(
            busy, timeout=20, what="calls in all connections of the second vendor, not in as few as the first has"
        )
        gate.set()
        for name in names:
            assert (await engine.wait(name, 60)).status == "delivered"
    assert pair.instead.most <= SLOTS
