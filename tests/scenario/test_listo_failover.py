"""The listo blueprint's failover from outside: when the secondary is asked, under which id, and what is kept of it."""

import json
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.support import listo_callbacks as vendors
from tests.support.listo_stand import DOWN, HANGS, SCALE, Listo, stand_fixture, token
from tests.support.waiting import wait_until

listo = stand_fixture()


def attempts(story: Any) -> list[Any]:
    return list(story["routes"][0]["attempts"])


def providers(story: Any) -> list[str]:
    return [each["provider"] for each in attempts(story)]


@pytest.mark.req("S2-64", "S2-63", "S2-51", "S2-57", "S2-67", "S2-68", "S2-71", "S2-135")
def test_scenario_three(listo: Listo) -> None:
    listo.sendgrid.answer(DOWN, DOWN)
    accepted = listo.send("order_confirmed", "email", priority="normal")
    assert accepted.status == 202
    story = listo.until(accepted.body["notificationId"], "delivered")
    assert providers(story) == ["SendGrid", "SendGrid", "AZURE_ACS"]
    waits = [each["nextTryInMs"] for each in attempts(story)]
    assert 5000 * SCALE <= waits[0] <= 6000 * SCALE + 1
    assert 10_000 * SCALE <= waits[1] <= 11_000 * SCALE + 1
    assert story["providerNames"] == ["SendGrid", "AZURE_ACS"]
    assert story["providerMessageIds"][0] is None
    assert story["providerMessageIds"][1]
    assert story["attemptCount"] == 3
    lines = [line for line in listo.programs[-1].events("route_attempted") if line["verdict"] == "finish"]
    assert [(line["provider"], line["failed_over"]) for line in lines] == [("AZURE_ACS", True)]


@pytest.mark.req("S2-64")
def test_at_the_documents_own_pace_the_secondary_has_it_after_fifteen_seconds(listo: Listo) -> None:
    listo.programs.pop().close()
    listo.start(CARILLON_DRILL__TIME_SCALE="1")
    listo.sendgrid.answer(DOWN, DOWN)
    story = listo.until(listo.sent(), "delivered", timeout=60)
    began, *_, ended = (datetime.fromisoformat(each["startedAt"]) for each in attempts(story))
    waits = sum(each["nextTryInMs"] or 0 for each in attempts(story)) / 1000
    assert 15.0 <= waits <= 17.01
    # A busy machine may be late.
    assert waits - 0.01 <= (ended - began).total_seconds() <= waits + 10


@pytest.mark.req("S2-50", "S2-57", "S2-66", "S2-67", "S2-68")
def test_sms_fails_over_to_sns_under_the_same_id(listo: Listo) -> None:
    listo.twilio.answer(HANGS, DOWN)
    listo.programs.pop().close()
    listo.start(CARILLON_LANES__STANDARD__TIMEOUT_SECONDS="3")
    story = listo.until(listo.sent("order_confirmed", "sms"), "delivered")
    assert providers(story) == ["Twilio", "Twilio", "AWS_SNS"]
    assert story["providerNames"] == ["Twilio", "AWS_SNS"]
    assert story["providerMessageIds"] == [None, next(iter(listo.sns.messages))]


@pytest.mark.req("S2-64", "S2-63")
def test_max_gives_the_diagram(listo: Listo) -> None:
    listo.programs.pop().close()
    settings = listo.folder / "listo.toml"
    settings.write_text(f'{settings.read_text()}\n[policy.retry."*/email"]\nfailover_after_attempts = "max"\n')
    listo.start()
    listo.sendgrid.answer(*[DOWN] * 5)
    story = listo.until(listo.sent(), "delivered", timeout=60)
    assert providers(story) == ["SendGrid"] * 5 + ["AZURE_ACS"]


@pytest.mark.req("S2-63", "S2-65", "S2-70", "S2-121")
def test_both_failing_share_one_budget_and_end_in_a_failure(listo: Listo) -> None:
    listo.sendgrid.answer(*[DOWN] * 2)
    listo.acs.answer(*[DOWN] * 4)
    story = listo.until(listo.sent(), "failed", timeout=60)
    assert providers(story) == ["SendGrid"] * 2 + ["AZURE_ACS"] * 4
    assert all(each["error"] and each["startedAt"] and each["outcome"] for each in attempts(story))
    assert story["providerMessageIds"] == [None, None]
    assert (len(listo.calls("SendGrid")), len(listo.calls("AZURE_ACS"))) == (2, 4)


@pytest.mark.req("S2-52", "S2-63")
def test_push_has_nobody_to_fail_over_to(listo: Listo) -> None:
    listo.fcm.answer(*[DOWN] * 6, path="/v1/")
    story = listo.until(listo.sent("order_confirmed", "push"), "failed", timeout=60)
    assert set(providers(story)) == {"FCM"}
    assert story["providerNames"] == ["FCM"]


def told_ids(listo: Listo, address: str) -> list[str]:
    """The id that each request about this address names: the header of the mail, and SendGrid's argument."""
    found = []
    for vendor in ("SendGrid", "AZURE_ACS"):
        for entry in listo.calls(vendor, address):
            body = json.loads(entry["body"])
            named = body["headers"]["X-Carillon-Notification"]
            assert body.get("custom_args", {}).get("notificationId", named) == named
            assert vendor == "AZURE_ACS" or body["custom_args"]["notificationId"]
            found.append(named)
    return found


@pytest.mark.req("S2-66")
def test_one_id_over_attempts_vendors_processes_and_retries_by_hand(listo: Listo) -> None:
    listo.start()
    ada, bob = "ada-66@example.org", "bob-66@example.org"
    listo.sendgrid.answer(DOWN, DOWN)
    listo.acs.answer(*[DOWN] * 4)
    one = listo.sent(recipient=ada, tenantId="acme")
    story = listo.until(one, "failed", timeout=60)
    assert providers(story) == ["SendGrid"] * 2 + ["AZURE_ACS"] * 4
    two = listo.sent(recipient=bob, tenantId="umbrella")
    listo.until(two, "delivered", timeout=60)
    again = listo.client.call(
        "POST",
        f"/api/v1/admin/notifications/{one}/retry",
        {"reason": "Customer escalation"},
        {"X-Admin-Override": "true", **token(role="admin")},
    )
    assert (again.status, again.body["notificationId"]) == (200, one), again
    story = listo.until(one, "delivered", timeout=60)
    assert (story["id"], len(attempts(story))) == (one, story["attemptCount"])
    about = told_ids(listo, ada)
    assert about == [one] * story["attemptCount"]
    assert len(about) >= 7
    assert set(told_ids(listo, bob)) == {two}
    # Azure knows a message by its operation: a repeat has the same one.
    operations = [entry["headers"]["operation-id"] for entry in listo.calls("AZURE_ACS", ada)]
    assert len(set(operations[:4])) == 1
    rows = listo.rows('SELECT "Id", "AttemptCount" FROM "NotificationQueue"')
    assert {row["Id"]: row["AttemptCount"] for row in rows}[one] == story["attemptCount"]
    assert len(rows) == 2
    assert listo.client.get("/api/v1/notifications").body["totalCount"] == 2


@pytest.mark.req("S2-66")
def test_the_id_of_a_push_and_of_a_text_message_stays_too(listo: Listo) -> None:
    listo.programs.pop().close()
    listo.start(PUBLIC_BASE_URL="https://bells.example")
    listo.fcm.answer(DOWN, DOWN, path="/v1/")
    listo.twilio.answer(DOWN)
    pushed, texted = listo.sent("order_confirmed", "push"), listo.sent("order_confirmed", "sms")
    assert len(attempts(listo.until(pushed, "delivered", timeout=60))) == 3
    story = listo.until(texted, "delivered", timeout=60)
    assert providers(story) == ["Twilio", "Twilio"]
    sent = [json.loads(entry["body"])["message"]["data"]["notification_id"] for entry in listo.calls("FCM")]
    assert sent == [pushed] * 3
    # Twilio is told where to report: the address names the message, and the report is about this notification.
    asked = [parse_qs(entry["body"])["StatusCallback"][0] for entry in listo.calls("Twilio")]
    assert len(asked) == 2
    assert len(set(asked)) == 1
    query = asked[0].partition("?")[2]
    sid = story["providerMessageIds"][0]
    failed = vendors.twilio(listo, sid, "failed", query=f"?{query}", base="https://bells.example", ErrorCode="30005")
    assert failed.status == 200, failed
    wait_until(lambda: len(listo.story(texted)["providerNames"]) == 2, timeout=40, what="the secondary")
    ended = listo.until(texted, "delivered")
    assert (ended["id"], providers(ended)) == (texted, ["Twilio", "Twilio", "AWS_SNS"])


@pytest.mark.req("S2-67")
def test_both_ids_are_kept_where_both_gave_one(listo: Listo) -> None:
    sent = listo.sent("order_confirmed", "sms")
    first = listo.until(sent, "delivered")
    (sid,) = listo.twilio.messages
    assert (first["providerMessageIds"], first["providerNames"]) == ([sid], ["Twilio"])
    assert vendors.twilio(listo, sid, "failed", ErrorCode="30005").status == 200
    wait_until(lambda: len(listo.story(sent)["providerNames"]) == 2, timeout=40, what="the secondary")
    second = listo.until(sent, "delivered")
    (sns_id,) = listo.sns.messages
    assert (second["providerMessageIds"], second["providerNames"]) == ([sid, sns_id], ["Twilio", "AWS_SNS"])
    assert second["id"] == first["id"] == sent


@pytest.mark.req("S2-48", "S2-44")
def test_jitter_is_spread_evenly_over_two_hundred_waits(listo: Listo) -> None:
    listo.programs.pop().close()
    listo.start(CARILLON_POLICY__BREAKER__FCM__FAILURE_THRESHOLD="100000")
    # Enough for all three attempts of each: a retry that overtakes a first attempt leaves it its failure.
    listo.fcm.answer(*[DOWN] * 600, path="/v1/")
    batch = [
        {"templateKey": "order_confirmed", "channel": "push", "recipient": f"device-{n}", "serviceOrigin": "orders"}
        for n in range(200)
    ]
    assert listo.client.call("POST", "/api/v1/notifications/batch", {"notifications": batch}).body["accepted"] == 200
    waits = "SELECT notification_id, attempt, delay_ms FROM attempts WHERE attempt <= 2 AND delay_ms > 0"
    listo.until_rows(waits, lambda rows: len(rows) >= 400, timeout=90)
    found = {(row["notification_id"], row["attempt"]): row["delay_ms"] for row in listo.rows(waits)}
    assert len(found) == 400
    jitter = 500 * SCALE
    quarters = {
        number: {
            one: int((wait - 2000 * SCALE * number) / jitter * 4) for (one, n), wait in found.items() if n == number
        }
        for number in (1, 2)
    }
    for parts in map(list, (quarters[1].values(), quarters[2].values())):
        assert (len(parts), set(parts)) == (200, {0, 1, 2, 3})
        # Of 200 even ones a quarter has fewer than 16 or more than 92 less than once in a billion runs.
        assert all(16 <= parts.count(quarter) <= 92 for quarter in range(4))
    # Drawn anew for each attempt: the second is in the quarter of the first as often as chance has it.
    alike = sum(quarters[2][one] == quarter for one, quarter in quarters[1].items())
    assert 16 <= alike <= 92
    assert len(set(found.values())) > 300
