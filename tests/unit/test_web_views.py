"""The words operators read for what the ledger holds."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from carillon.upkeep.api.notifications_wire import StatusWord, overall, statuses_of, word_of
from carillon.upkeep.health import Readiness, examine


@pytest.mark.req("S2-114")
@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["queued"], "queued"),
        (["delivered", "queued", "failed"], "queued"),
        (["delivered", "failed"], "failed"),
        (["delivered", "skipped"], "delivered"),
        (["failed", "skipped"], "failed"),
        (["skipped", "skipped"], "skipped"),
        (["opened", "delivered"], "delivered"),
        (["sent", "delivered"], "sent"),
        (["opened", "skipped"], "opened"),
        ([], "skipped"),
    ],
)
def test_several_routes_have_one_word(words: list[StatusWord], word: str) -> None:
    assert overall(words) == word


@pytest.mark.req("S2-114")
def test_words_stand_for_states() -> None:
    assert statuses_of("queued") == ("pending", "failed", "vendor_queued")
    assert statuses_of("delivered") == ("published", "received")
    assert statuses_of("opened") == ("opened",)
    assert statuses_of("failed") == ("dead_letter",)
    assert statuses_of("skipped") == ("skipped",)
    assert statuses_of("sent") == ("vendor_sent",)


@pytest.mark.req("S2-31", "S2-114")
def test_strictly_only_a_receipt_makes_it_delivered() -> None:
    assert statuses_of("sent", strict=True) == ("published", "vendor_sent")
    assert statuses_of("delivered", strict=True) == ("received",)
    times = {"status": "published", "opened_at": None, "delivered_at": None, "receipt": None}
    assert (word_of(times, strict=False), word_of(times, strict=True)) == ("delivered", "sent")
    assert word_of({**times, "delivered_at": 1}, strict=True) == "delivered"
    assert word_of({**times, "delivered_at": 1, "opened_at": 2}, strict=False) == "opened"
    assert word_of({**times, "status": "dead_letter", "opened_at": 2}, strict=False) == "failed"


async def fine() -> Mapping[str, Any]:
    return {"version": "1"}


async def limping() -> Mapping[str, Any]:
    return {"status": "degraded"}


async def broken() -> Mapping[str, Any]:
    raise OSError("postgresql://user:secret@host refused")


async def stuck() -> Mapping[str, Any]:
    await asyncio.get_running_loop().create_future()
    return {}


async def test_health_is_as_good_as_its_worst_check() -> None:
    assert (await examine({})).status == "healthy"
    assert (await examine({"a": fine})).status == "healthy"
    assert (await examine({"a": fine, "b": limping})).status == "degraded"
    assert (await examine({"a": broken, "b": limping})).status == "unhealthy"


async def test_a_failed_check_names_its_kind_and_no_secret() -> None:
    found = await examine({"ledger": broken})
    assert found.checks["ledger"]["error"] == "OSError"
    assert "secret" not in repr(found)


async def test_checks_run_together_and_none_hangs() -> None:
    began = asyncio.get_running_loop().time()
    found = await examine({"a": stuck, "b": stuck, "c": fine})
    assert asyncio.get_running_loop().time() - began < 3.5
    assert [check["status"] for check in found.checks.values()] == ["unhealthy", "unhealthy", "healthy"]


def test_readiness_goes_one_way() -> None:
    readiness = Readiness()
    phases = [readiness.phase]
    readiness.ready = True
    phases.append(readiness.phase)
    readiness.ready = False
    phases.append(readiness.phase)
    assert phases == ["starting", "ready", "draining"]
