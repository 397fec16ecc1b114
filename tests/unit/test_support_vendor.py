"""The vendor stub records first, answers as told and kills on request."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.checker import read_lines
from tests.support.vendor import Reply, Vendor


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Vendor]:
    with Vendor(tmp_path / "ledger.jsonl") as vendor:
        yield vendor


@pytest.fixture
async def client(vendor: Vendor) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(vendor.url) as session:
        yield session


async def test_records_and_answers_in_order(vendor: Vendor, client: aiohttp.ClientSession) -> None:
    vendor.answer(Reply(status=503, headers={"Retry-After": "7"}), path="/send")
    vendor.answer(lambda entry: Reply(body={"echo": entry["body"]}))
    async with client.get("/other") as other:
        assert await other.json() == {"echo": ""}
    async with client.post("/send?x=1", data=b"ding", headers={"webhook-id": "m1"}) as first:
        assert (first.status, first.headers["Retry-After"]) == (503, "7")
    async with client.post("/send", data=b"dong", headers={"webhook-id": "m1"}) as second:
        assert second.status == 200
    lines = read_lines(vendor.ledger)
    assert lines == vendor.entries == await vendor.until(3)
    assert [(line["n"], line["id"], line["status"], line["body"]) for line in lines] == [
        (1, None, 200, ""),
        (2, "m1", 503, "ding"),
        (3, "m1", 200, "dong"),
    ]
    assert lines[1]["path"] == "/send?x=1"
    assert lines[0]["time_us"] <= lines[2]["time_us"]


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as child:
        yield child
        child.kill()


async def test_kills_after_recording_and_before_answering(
    vendor: Vendor, client: aiohttp.ClientSession, victim: subprocess.Popen[bytes]
) -> None:
    vendor.strike(victim.pid, on=2)
    await client.post("/send")
    assert victim.poll() is None
    await client.post("/send")
    assert await asyncio.to_thread(victim.wait, 60) == -signal.SIGKILL
    assert len(read_lines(vendor.ledger)) == 2


async def test_resets_and_hangs_leave_the_caller_in_doubt(vendor: Vendor, client: aiohttp.ClientSession) -> None:
    vendor.answer(Reply(reset=True), Reply(hang=True))
    with pytest.raises(aiohttp.ClientOSError):
        await client.post("/send")
    with pytest.raises(TimeoutError):
        await client.post("/send", timeout=aiohttp.ClientTimeout(total=3))
    assert [entry["status"] for entry in vendor.entries] == [0, 0]


async def test_drips_its_body(vendor: Vendor, client: aiohttp.ClientSession) -> None:
    vendor.answer(Reply(body="ding", drip=0.001, delay=0.001))
    async with client.get("/") as response:
        assert await response.text() == "ding"
