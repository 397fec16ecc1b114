"""The example of the how-to page works as printed."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.providers.http import HttpClient
from carillon.providers.tools import Secret
from tests.support.dispatches import dispatch, tools
from tests.support.sources import ROOT
from tests.support.vendor import Reply, Vendor

PAGE = ROOT / "docs" / "how-to" / "add-a-provider.md"


@pytest.fixture
def printed() -> ModuleType:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    module = ModuleType("carillon.providers.ntfy")
    exec(compile(found[1], str(PAGE), "exec"), module.__dict__)  # noqa: S102 - the page is ours
    return module


@pytest.fixture
def vendor(tmp_path: Path) -> Iterator[Vendor]:
    with Vendor(tmp_path / "ntfy.jsonl", id_header="idempotency-key") as vendor:
        yield vendor


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(200, body={"id": "m1"}), Sent("m1")),
        (Reply(200, body=b"\xff garbage"), Sent()),
        (Reply(429, {"Retry-After": "5"}, b""), Throttled("HTTP 429 ", 5.0)),
        (Reply(404, body=b""), Refused("HTTP 404 ", "http_404")),
        (Reply(503, body=b""), Unavailable("HTTP 503 ", "http_503")),
        (Reply(reset=True), Unknown),
    ],
)
async def test_the_printed_provider(
    printed: Any, vendor: Vendor, http: HttpClient, reply: Reply, outcome: Outcome | type[Unknown]
) -> None:
    settings = printed.Settings(token=Secret("tk_1"), url=f"{vendor.url}/")
    provider = printed.create("ntfy", settings, tools(http))
    vendor.answer(reply)
    found = await provider.send(dispatch(channel="push", address="bells"))
    assert found == outcome or (outcome is Unknown and isinstance(found, Unknown))
    [entry] = vendor.entries
    assert entry["id"] == "0191f0a0-0000-7000-8000-000000000001/webhook:user-7"
    assert entry["headers"]["authorization"] == "Bearer tk_1"
    assert "tk_1" not in repr(settings)
    await provider.aclose()


@pytest.mark.parametrize("address", [None, "", "\x00", "a\r\nb", "a b", "é", "x" * 65])
async def test_the_printed_provider_calls_nobody_for_what_is_no_topic(
    printed: Any, vendor: Vendor, http: HttpClient, address: str | None
) -> None:
    settings = printed.Settings(token=Secret("tk_1"), url=f"{vendor.url}/")
    provider = printed.create("ntfy", settings, tools(http))
    assert isinstance(await provider.send(dispatch(channel="push", address=address)), Refused)
    assert vendor.entries == []
    await provider.aclose()
