"""The listo blueprint's circuit breakers from outside: when they open, what they spare, and how they close."""

import time
from itertools import pairwise
from typing import Any

import pytest

from tests.support.listo_stand import DOWN, Listo, stand_fixture
from tests.support.servers import Redis
from tests.support.waiting import wait_until

# Without questions in between, so that only messages decide; the tests about questions switch them on.
QUIET = "[probing]\nproviders = []\n"
SCALE = 0.05
"""Slower than other stands: while a breaker is open there must be time to look at it on a busy machine."""
listo = stand_fixture(QUIET, scale=SCALE)

SMS_OPEN, PUSH_OPEN = 60 * SCALE, 120 * SCALE


def providers(story: Any) -> list[str]:
    return [each["provider"] for each in story["routes"][0]["attempts"]]


def fail_synchronously(listo: Listo, channel: str, times: int) -> None:
    """One call each, so that failures can be counted one by one."""
    for _ in range(times):
        assert listo.send("order_confirmed", channel, synchronous=True).status in {502, 504}


def state(listo: Listo, provider: str) -> str:
    return str(listo.client.get("/health").body["checks"]["breakers"]["states"].get(provider, "closed"))


@pytest.mark.req("S2-58", "S2-59", "S2-63")
@pytest.mark.parametrize(
    ("channel", "primary", "secondary", "threshold"),
    [("sms", "Twilio", "AWS_SNS", 5), ("email", "SendGrid", "AZURE_ACS", 5)],
)
def test_five_failures_in_a_row_open_and_the_secondary_is_asked_at_once(
    listo: Listo, channel: str, primary: str, secondary: str, threshold: int
) -> None:
    stub = listo.twilio if channel == "sms" else listo.sendgrid
    stub.answer(*[DOWN] * threshold)
    fail_synchronously(listo, channel, threshold - 1)
    assert state(listo, primary) == "closed"
    fail_synchronously(listo, channel, 1)
    assert state(listo, primary) == "open"
    story = listo.until(listo.sent("order_confirmed", channel), "delivered")
    assert providers(story) == [secondary]
    assert story["attemptCount"] == 1
    assert len(listo.calls(primary)) == threshold


@pytest.mark.req("S2-58", "S2-63", "S2-52")
def test_push_takes_ten_and_then_fails_without_a_call(listo: Listo) -> None:
    listo.fcm.answer(*[DOWN] * 10, path="/v1/")
    fail_synchronously(listo, "push", 9)
    assert state(listo, "FCM") == "closed"
    fail_synchronously(listo, "push", 1)
    assert state(listo, "FCM") == "open"
    story = listo.until(listo.sent("order_confirmed", "push"), "failed")
    assert (story["lastError"], providers(story)) == ("circuit breaker open: FCM", [])
    assert len(listo.calls("FCM")) == 10


@pytest.mark.req("S2-58")
def test_a_success_in_between_starts_the_count_again(listo: Listo) -> None:
    listo.twilio.answer(*[DOWN] * 4)
    fail_synchronously(listo, "sms", 4)
    assert listo.send("order_confirmed", "sms", synchronous=True).status == 200
    listo.twilio.answer(*[DOWN] * 4)
    fail_synchronously(listo, "sms", 4)
    assert state(listo, "Twilio") == "closed"


@pytest.mark.req("S2-59", "S2-60")
def test_after_its_time_one_message_probes_and_closes(listo: Listo) -> None:
    listo.twilio.answer(*[DOWN] * 5)
    fail_synchronously(listo, "sms", 4)
    before = time.monotonic()
    fail_synchronously(listo, "sms", 1)
    wait_until(lambda: state(listo, "Twilio") == "half_open", timeout=40, what="half open")
    assert time.monotonic() - before > SMS_OPEN
    story = listo.until(listo.sent("order_confirmed", "sms"), "delivered")
    assert providers(story) == ["Twilio"]
    assert state(listo, "Twilio") == "closed"


@pytest.mark.req("S2-60")
def test_a_probe_that_fails_opens_for_the_same_time_again(listo: Listo) -> None:
    listo.twilio.answer(*[DOWN] * 6)
    fail_synchronously(listo, "sms", 5)
    wait_until(lambda: state(listo, "Twilio") == "half_open", timeout=40, what="half open")
    again = time.monotonic()
    assert listo.send("order_confirmed", "sms", synchronous=True).status == 502
    assert state(listo, "Twilio") == "open"
    assert listo.send("order_confirmed", "sms", synchronous=True).status == 200
    wait_until(lambda: state(listo, "Twilio") == "half_open", timeout=40, what="half open again")
    assert time.monotonic() - again > SMS_OPEN
    assert (len(listo.calls("Twilio")), len(listo.calls("AWS_SNS"))) == (6, 1)


@pytest.mark.req("S2-60", "S2-58")
def test_push_stays_open_for_two_minutes(listo: Listo) -> None:
    listo.fcm.answer(*[DOWN] * 10, path="/v1/")
    fail_synchronously(listo, "push", 9)
    before = time.monotonic()
    fail_synchronously(listo, "push", 1)
    wait_until(lambda: state(listo, "FCM") == "half_open", timeout=40, what="half open")
    assert time.monotonic() - before > PUSH_OPEN
    listo.until(listo.sent("order_confirmed", "push"), "delivered")
    assert state(listo, "FCM") == "closed"


@pytest.mark.req("S2-61")
def test_an_open_provider_is_asked_for_its_health_and_never_with_a_message(listo: Listo) -> None:
    listo.programs.pop().close()
    # The breaker itself would stay open for an hour: only an answer can shorten that.
    changes = {"CARILLON_PROBING__PROVIDERS": "Twilio", "CARILLON_POLICY__BREAKER__TWILIO__OPEN_SECONDS": "180000"}
    program = listo.start(**changes)
    listo.twilio.answer(*[DOWN] * 5, path="/2010-04-01/Accounts/AC0123456789abcdef0123456789abcdef/Messages")
    fail_synchronously(listo, "sms", 4)
    before = time.monotonic()
    fail_synchronously(listo, "sms", 1)
    listo.twilio.answer(*[DOWN] * 2)
    asked = listo.twilio.wait_for(3, lambda entry: "/Messages" not in entry["path"], timeout=40)
    program.wait_for("provider_probed", lambda line: line.get("error") is None)
    times = [entry["time_us"] / 1e6 for entry in asked]
    assert time.monotonic() - before > 3 * 30 * SCALE * 0.9
    for one, other in pairwise(times):
        assert 30 * SCALE * 0.8 < other - one < 30 * SCALE * 10
    assert {entry["method"] for entry in asked} == {"GET"}
    assert len(listo.calls("Twilio")) == 5
    wait_until(lambda: state(listo, "Twilio") == "half_open", timeout=40, what="half open early")
    assert providers(listo.until(listo.sent("order_confirmed", "sms"), "delivered")) == ["Twilio"]


@pytest.mark.req("S2-62")
@pytest.mark.parametrize("home", ["ledger", "redis"])
def test_two_instances_share_one_state(listo: Listo, home: str, request: pytest.FixtureRequest) -> None:
    changes = {}
    if home == "redis":
        server: Redis = request.getfixturevalue("redis_server")
        server.flush()
        changes = {"REDIS_URL": server.url()}
    listo.programs.pop().close()
    changes["CARILLON_POLICY__BREAKER__TWILIO__OPEN_SECONDS"] = "180000"
    listo.start(**changes)
    listo.twilio.answer(*[DOWN] * 5)
    fail_synchronously(listo, "sms", 3)
    listo.start(**changes)
    fail_synchronously(listo, "sms", 2)
    for _ in range(2):
        wait_until(lambda: state(listo, "Twilio") == "open", timeout=40, what="both instances to know")
        assert listo.send("order_confirmed", "sms", synchronous=True).status == 200
        listo.programs.reverse()
    assert (len(listo.calls("Twilio")), len(listo.calls("AWS_SNS"))) == (5, 2)
    assert state(listo, "Twilio") == "open"


@pytest.mark.req("S2-63")
def test_defer_lets_messages_wait_for_the_breaker(listo: Listo) -> None:
    listo.programs.pop().close()
    settings = listo.folder / "listo.toml"
    settings.write_text(f'{settings.read_text()}\n[policy.retry."*/*"]\non_open = "defer"\n')
    listo.start()
    listo.fcm.answer(*[DOWN] * 10, path="/v1/")
    fail_synchronously(listo, "push", 10)
    story = listo.until(listo.sent("order_confirmed", "push"), "delivered", timeout=60)
    assert (story["attemptCount"], providers(story)) == (1, ["FCM"])
