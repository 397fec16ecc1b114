"""What administrators see and do while a breaker is open: the whole fleet's state, and a provider called regardless."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.blueprint_stand import database
from tests.support.client import Client
from tests.support.listo_stand import DOWN, Listo
from tests.support.servers import Redis

# One failure opens a breaker for longer than any of these tests.
NERVOUS = """
[policy.breaker.twilio]
failure_threshold = 1
open_seconds = 1000000
[policy.breaker.aws_sns]
failure_threshold = 1
open_seconds = 1000000
[probing]
providers = []
"""
OVERRIDE = {"X-Admin-Override": "true"}


@pytest.fixture(params=["sqlite", "postgres", "postgres+redis"], name="listo")
def nervous(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listo]:
    """Breakers at home in each engine's ledger, and in Redis."""
    environment: Any = {}
    if request.param.endswith("redis"):
        redis: Redis = request.getfixturevalue("redis_server")
        redis.flush()
        environment["REDIS_URL"] = redis.url()
        request.param = "postgres"
    folder = tmp_path_factory.mktemp("listo")
    for url in database(request, folder):
        with Listo(folder, url, NERVOUS, **environment) as stand:
            yield stand


def states(address: str) -> dict[str, str]:
    items: list[dict[str, Any]] = Client(address).get("/api/v1/admin/providers").body["items"]
    return {item["provider"]: item["state"] for item in items if item["channel"] == "sms"}


def everything_fails(stand: Listo) -> str:
    stand.twilio.answer(DOWN, DOWN, DOWN, DOWN)
    stand.sns.answer(DOWN, DOWN, DOWN, DOWN)
    known = stand.sent("order_confirmed", "sms", data={"orderNumber": "1"})
    stand.until(known, "failed")
    return known


@pytest.mark.req("S2-62")
def test_every_instance_shows_the_fleets_breakers(listo: Listo) -> None:
    first = listo.start()
    doors = listo.start("--roles", "doors")
    addresses = [str(program.wait_ready()["addresses"][0]) for program in (first, doors)]
    assert [states(address) for address in addresses] == [{"Twilio": "closed", "AWS_SNS": "closed"}] * 2
    everything_fails(listo)
    assert [states(address) for address in addresses] == [{"Twilio": "open", "AWS_SNS": "open"}] * 2


@pytest.mark.req("S2-128")
def test_a_forced_provider_is_called_whatever_its_breaker_says(listo: Listo) -> None:
    listo.start()
    known = everything_fails(listo)
    listo.sns._scripts.clear()  # noqa: SLF001 - the provider is back; only its breaker does not know
    calls = len(listo.twilio.entries), len(listo.sns.entries)
    path = f"/api/v1/admin/notifications/{known}/retry"
    # Without force nobody is called, because every breaker is open.
    assert listo.client.call("POST", path, {"reason": "try"}, OVERRIDE).status == 200
    story = listo.until(known, "failed")
    assert "circuit breaker open" in story["lastError"]
    assert (len(listo.twilio.entries), len(listo.sns.entries)) == calls
    forced = {"reason": "try harder", "forceProvider": "AWS_SNS"}
    assert listo.client.call("POST", path, forced, OVERRIDE).status == 200
    listo.until(known, "delivered")
    assert (len(listo.twilio.entries), len(listo.sns.entries)) == (calls[0], calls[1] + 1)
    assert states(listo.address)["AWS_SNS"] == "open"
