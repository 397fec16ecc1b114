"""Chains of channels from outside: under moved time, in the pytest plugin, embedded, over HTTP and RabbitMQ."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import carillon
from carillon.client import Rejected
from carillon.testing import Outbox

CONFIG = """extends = "local"
[categories.news]
throttle = "1 in 1h"
[categories.offers]
"""
DATA = {"name": "Ada", "link": "https://example.org/"}
CHAIN: dict[str, Any] = {"channels": ["push", "email"], "until": "read", "after": "10m", "data": DATA}
ADA: dict[str, Any] = {**CHAIN, "user_id": "ada"}


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    config = tmp_path / "carillon.toml"
    config.write_text(CONFIG)
    with Outbox(tmp_path, config) as outbox:
        outbox.prefer("ada", contacts={"email": "ada@example.org", "pushToken": "device-ada"})
        yield outbox


@pytest.mark.req("P-852", "P-855")
def test_prefer_refuses_what_the_api_refuses_and_stores_nothing_then(outbox: Outbox) -> None:
    refused: dict[str, dict[str, Any]] = {
        "timeZone is not known": {"time_zone": "Mars/Base"},
        "there is no category noise; known are": {"categories": {"noise": {"email": False}}},
        "security is required: nobody can switch it off": {"categories": {"security": {"email": False}}},
        "contacts.email must be an e-mail address": {"contacts": {"email": "nobody"}},
        "startTime": {"quiet_hours": {"start_time": "25:00", "end_time": "07:00"}},
        "there is no calendar DE": {"quiet_hours": {"start_time": "22:00", "end_time": "07:00", "holidays": "DE"}},
        "holydays": {"holydays": 1},
    }
    for words, wish in refused.items():
        with pytest.raises(Rejected) as caught:
            outbox.prefer("ada", **{"contacts": {"pushToken": "other"}, **wish})
        assert (caught.value.code, words in str(caught.value)) == ("VALIDATION_ERROR", True), str(caught.value)
    outbox.send("welcome", channel="push", user_id="ada", data=DATA)
    outbox.assert_sent(channel="push", recipient="device-ada")
    with pytest.raises(Rejected, match="an embedded Carillon is never synchronous"):
        outbox.send("welcome", channel="push", user_id="ada", data=DATA, synchronous=True)
    outbox.prefer("ada", channels={"push": False}, quiet_hours={"start_time": "22:00", "end_time": "07:00"})
    with pytest.raises(Rejected, match="has switched push off"):
        outbox.send("welcome", channel="push", user_id="ada", data=DATA)


@pytest.mark.req("P-320")
@pytest.mark.parametrize("after", ["10m", "PT10M", 600])
def test_the_next_channel_goes_if_nobody_reads_the_first(outbox: Outbox, after: object) -> None:
    sent = outbox.send("welcome", **{**ADA, "after": after})
    assert sent.status == "queued"
    outbox.assert_sent(channel="push")
    outbox.clock.advance("9m")
    outbox.assert_nothing_sent(channel="email")
    outbox.clock.advance("1m")
    outbox.assert_sent(channel="email", recipient="ada@example.org")
    found = outbox.wait(sent.notification_id)
    assert [(route.status, route.goal) for route in found.routes] == [("delivered", "read")] * 2


@pytest.mark.req("P-320", "P-323")
def test_who_reads_the_first_gets_no_other(outbox: Outbox) -> None:
    sent = outbox.send("welcome", **ADA)
    outbox.assert_sent(channel="push")
    assert outbox.report(sent.notification_id, "delivered", channel="push") == "noted"
    assert {route.status for route in outbox.get_routes(sent.notification_id)} == {"delivered", "queued"}
    assert outbox.report(sent.notification_id, "read", channel="push") == "noted"
    assert outbox.report(sent.notification_id, "read", channel="push") == "repeated"
    outbox.clock.advance("1h")
    outbox.assert_nothing_sent(channel="email")
    route = next(one for one in outbox.wait(sent.notification_id).routes if one.channel == "email")
    assert (route.status, route.gate) == ("skipped", "reached")
    assert route.last_error == "another channel reached its goal: read on push"


@pytest.mark.req("P-321")
def test_a_first_channel_that_fails_for_good_lets_the_next_go_at_once(outbox: Outbox) -> None:
    outbox.fail("push", "refused")
    outbox.send("welcome", **ADA)
    outbox.assert_sent(channel="email")


@pytest.mark.req("P-321")
def test_a_channel_that_cannot_reach_the_person_is_left_out(outbox: Outbox) -> None:
    outbox.prefer("bob", contacts={"email": "bob@example.org"})
    outbox.prefer("eve", contacts={"email": "eve@example.org", "pushToken": "device-eve"}, channels={"push": False})
    for person in ("bob", "eve"):
        sent = outbox.send("welcome", **CHAIN, user_id=person)
        outbox.assert_sent(channel="email", recipient=f"{person}@example.org")
        push = next(one for one in outbox.wait(sent.notification_id).routes if one.channel == "push")
        assert push.status == "skipped"
    with pytest.raises(Rejected) as refused:
        outbox.send("welcome", **CHAIN, user_id="nobody")
    assert refused.value.code == "RECIPIENT_UNRESOLVED"


@pytest.mark.req("P-321", "P-203", "P-204")
def test_a_category_left_on_one_channel_lets_the_next_go(outbox: Outbox) -> None:
    outbox.prefer("ada", categories={"offers": {"push": False}})
    sent = outbox.send("welcome", category="offers", **ADA)
    outbox.assert_sent(channel="email")
    assert {one.channel: one.gate for one in outbox.wait(sent.notification_id).routes}["push"] == "category"


@pytest.mark.req("P-304", "P-320")
def test_a_chain_counts_once_against_a_throttle(outbox: Outbox) -> None:
    assert outbox.send("welcome", category="news", **ADA).status == "queued"
    late = outbox.send("welcome", category="news", **ADA)
    assert {one.reason for one in late.skipped} == {"throttle"}


@pytest.mark.req("P-320")
def test_a_repeat_of_the_request_is_answered_as_the_first(outbox: Outbox) -> None:
    first = outbox.send("welcome", idempotency_key="once", **ADA)
    outbox.assert_sent(channel="push")
    outbox.report(first.notification_id, "read", channel="push")
    again = outbox.send("welcome", idempotency_key="once", **ADA)
    assert (again.replayed, again.status, again.skipped) == (True, "queued", [])


@pytest.mark.req("P-303", "P-320")
def test_a_digest_is_a_chain_too(outbox: Outbox) -> None:
    for _ in range(2):
        outbox.send("welcome", digest={"key": "k", "window": "1h"}, **ADA)
    outbox.assert_nothing_sent()
    outbox.clock.advance("1h")
    outbox.assert_sent(channel="push")
    outbox.assert_nothing_sent(channel="email")
    outbox.clock.advance("10m")
    outbox.assert_sent(channel="email")


@pytest.mark.req("P-301", "P-320")
def test_what_expires_before_the_next_channel_is_not_tried(outbox: Outbox) -> None:
    sent = outbox.send("welcome", ttl="5m", **ADA)
    outbox.assert_sent(channel="push")
    outbox.clock.advance("10m")
    outbox.assert_nothing_sent(channel="email")
    assert {one.channel: one.gate for one in outbox.wait(sent.notification_id).routes}["email"] == "expired"


@pytest.mark.req("P-302", "P-320")
def test_a_newer_one_takes_the_place_of_the_rest_of_a_chain(outbox: Outbox) -> None:
    first = outbox.send("welcome", collapse_key="score", **ADA)
    outbox.assert_sent(channel="push")
    outbox.send("welcome", collapse_key="score", **ADA)
    outbox.assert_sent(channel="push", times=2)
    outbox.clock.advance("10m")
    outbox.assert_sent(channel="email")
    assert {one.channel: one.gate for one in outbox.wait(first.notification_id).routes}["email"] == "collapsed"


@pytest.mark.req("P-322")
@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"after": None}, "VALIDATION_ERROR"),
        ({"until": None}, "VALIDATION_ERROR"),
        ({"channels": ["push"]}, "VALIDATION_ERROR"),
        ({"channels": ["push", "push"]}, "VALIDATION_ERROR"),
        ({"after": "soon"}, "VALIDATION_ERROR"),
        ({"until": "loved"}, "VALIDATION_ERROR"),
        ({"channel": "push"}, "VALIDATION_ERROR"),
    ],
)
def test_wishes_that_no_chain_can_keep(outbox: Outbox, wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(Rejected) as refused:
        outbox.send("welcome", **{**ADA, **wrong})
    assert refused.value.code == code


@pytest.mark.req("P-320")
async def test_two_processes_on_postgresql(postgres_dsn: str, tmp_path: Path) -> None:
    config = tmp_path / "carillon.toml"
    config.write_text(CONFIG)
    environ = {"CARILLON_LEDGER__ALLOW_UNSAFE": "1"}
    addresses = {"channels": ["push", "email"], "until": "delivered", "after": 600, "data": DATA}
    async with (
        carillon.open(str(postgres_dsn), config=config, environ=environ) as one,
        carillon.open(str(postgres_dsn), config=config, environ=environ) as other,
    ):
        await one.prefer("ada", contacts={"email": "ada@example.org", "pushToken": "device"})
        sent = await one.send("welcome", user_id="ada", **addresses)
        while not any(box.captured() for box in (*one.sandboxes, *other.sandboxes)):
            await other.hasten(0)
        while await other.due():
            pass
        assert await other.report(sent.notification_id, "delivered", channel="push") == "noted"
        found = await one.wait(sent.notification_id)
    assert {route.channel: route.status for route in found.routes} == {"push": "delivered", "email": "skipped"}


@pytest.mark.req("P-1103")
@pytest.mark.parametrize("gate", ["throttle", "category", "suppressed"])
def test_a_chain_that_a_gate_skipped_whole_is_redriven_one_channel_after_the_other(outbox: Outbox, gate: str) -> None:
    contacts = {"push": "device-ada", "email": "ada@example.org"}
    outbox.send("welcome", channel="email", category="news", user_id="ada", data=DATA)
    outbox.assert_sent(channel="email")
    if gate == "category":
        outbox.prefer("ada", categories={"offers": dict.fromkeys(contacts, False)})
    for channel, address in contacts.items() if gate == "suppressed" else ():
        outbox.suppress(channel, address, "asked")
    sent = outbox.send("welcome", category="news" if gate == "throttle" else "offers", **ADA)
    assert {one.reason for one in sent.skipped} == {gate}
    outbox.clock.advance("1h")
    outbox.prefer("ada", categories={"offers": dict.fromkeys(contacts, True)})
    for channel, address in contacts.items() if gate == "suppressed" else ():
        assert outbox.lift_suppression(channel, address)
    assert outbox.redrive_skipped("it may go now").redriven == 2
    outbox.assert_sent(channel="push")
    outbox.clock.advance("9m")
    assert len(outbox.sent(channel="email")) == 1
    outbox.clock.advance("1m")
    outbox.assert_sent(channel="email", times=2)
    assert [one.status for one in outbox.wait(sent.notification_id).routes] == ["delivered"] * 2


@pytest.mark.req("P-1102")
def test_what_is_redriven_before_its_time_waits_for_it(outbox: Outbox) -> None:
    outbox.prefer("ada", categories={"offers": {"push": False}})
    about = {"channel": "push", "user_id": "ada", "category": "offers", "data": DATA}
    sent = outbox.send("welcome", scheduled_for="2090-01-01T09:00:00Z", **about)
    late = outbox.send("welcome", scheduled_for="2090-01-01T09:00:00Z", expires_at="2089-01-01T09:00:00Z", **about)
    assert (sent.status, late.status) == ("skipped", "skipped")
    outbox.prefer("ada", categories={"offers": {"push": True}})
    assert outbox.redrive_skipped("wanted again").redriven == 2
    outbox.assert_nothing_sent()
    times = [outbox.get_routes(one.notification_id)[0].next_attempt_at for one in (sent, late)]
    assert times == ["2090-01-01T09:00:00.000Z", "2089-01-01T09:00:00.000Z"]
