"""The listo blueprint's failures from outside: what is stored, which alerts are sent, what the API shows."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from tests.support import listo_callbacks as vendors
from tests.support.blueprint_stand import database
from tests.support.listo_stand import DOWN, Listo
from tests.support.servers import Redis
from tests.support.vendor import Reply
from tests.support.waiting import wait_until

STREAM = "listo-notifications-alerts"
PATIENT = "\n".join(
    f"[policy.breaker.{name}]\nfailure_threshold = 100000"
    for name in ("twilio", "aws_sns", "sendgrid", "azure_acs", "fcm")
)
"""Breakers that stay closed, so that every budget is used up."""
SHOWN = {
    *("id", "tenantId", "userId", "channel", "templateKey", "priority", "status", "locale", "providerMessageIds"),
    *("providerNames", "attemptCount", "lastAttemptAt", "lastError", "createdAt", "sentAt", "deliveredAt", "failedAt"),
}


@pytest.fixture(params=["sqlite", "postgres"], scope="module", name="listo")
def listo_with_redis(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_server: Redis
) -> Iterator[Listo]:
    redis_server.flush()
    folder = tmp_path_factory.mktemp("listo")
    for url in database(request, folder):
        with Listo(folder, url, PATIENT, REDIS_URL=redis_server.url()) as stand:
            stand.sendgrid.default = stand.acs.default = DOWN
            stand.start()
            yield stand


@pytest.fixture
def alerts(redis_server: Redis) -> Iterator["Alerts"]:
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield Alerts(client)


class Alerts:
    """What the stream holds."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def about(self, notification_id: str) -> list[dict[str, Any]]:
        entries: Any = self._client.xrange(STREAM)
        told = [json.loads(fields["event"]) for _, fields in entries]
        return [alert for alert in told if alert["notificationId"] == notification_id]

    def until(self, notification_id: str, number: int = 1) -> list[dict[str, Any]]:
        what = f"{number} alerts about {notification_id}"
        wait_until(lambda: len(self.about(notification_id)) >= number, timeout=40, what=what)
        return self.about(notification_id)


def queue_row(listo: Listo, notification_id: str) -> dict[str, Any]:
    (row,) = [row for row in listo.rows('SELECT * FROM "NotificationQueue"') if row["Id"] == notification_id]
    return row


def moment(stored: Any) -> datetime:
    """SQLite has Unix milliseconds."""
    return stored if isinstance(stored, datetime) else datetime.fromtimestamp(stored / 1000, UTC)


@pytest.mark.req("S2-118", "S2-119", "S2-120", "S2-121")
def test_a_used_up_budget_is_stored_and_told(listo: Listo, alerts: Alerts) -> None:
    began = datetime.now(UTC)
    known = listo.sent("order_confirmed", "email", userId="u-7", data={"orderNumber": "1"})
    story = listo.until(known, "failed")
    attempts = story["routes"][0]["attempts"]
    assert [attempt["provider"] for attempt in attempts] == ["SendGrid"] * 2 + ["AZURE_ACS"] * 4
    last = attempts[-1]["error"]
    row = queue_row(listo, known)
    assert row["Status"] == "failed"
    assert row["AttemptCount"] == 6
    assert row["LastError"] == f"Retry exhausted after 6 attempts. Last error: {last}"
    assert began < moment(row["FailedAt"]) < datetime.now(UTC)
    # The API rounds to milliseconds.
    assert abs(moment(row["FailedAt"]) - datetime.fromisoformat(story["failedAt"])) <= timedelta(milliseconds=1)
    asked = f"""SELECT count(*) AS n FROM "NotificationQueue" WHERE "Id" = '{known}' AND "Status" = 'failed'"""  # noqa: S608 - ours
    (count,) = listo.rows(asked)
    assert count["n"] == 1, "all attempts are one row"
    (alert,) = alerts.until(known)
    assert alert.pop("alertId") > 0
    assert alert == {
        "eventType": "NotificationFailed",
        "notificationId": known,
        "tenantId": None,
        "userId": "u-7",
        "channel": "email",
        "templateKey": "order_confirmed",
        "attemptCount": 6,
        "lastError": last,
        "failedAt": story["failedAt"],
        "providerAttempts": [
            {"provider": "SendGrid", "messageId": None, "error": attempts[1]["error"]},
            {"provider": "AZURE_ACS", "messageId": None, "error": last},
        ],
    }
    # It is told before it is taken out.
    listo.until_rows("SELECT * FROM outbox", lambda rows: rows == [])


@pytest.mark.req("S2-118")
def test_the_number_in_the_words_is_the_number_of_attempts(listo: Listo) -> None:
    listo.fcm.answer(*[DOWN] * 3, path="/v1/")
    other = listo.sent("order_confirmed", "push", serviceOrigin="orders", recipient=vendors.device())
    error = listo.until(other, "failed")["routes"][0]["attempts"][-1]["error"]
    row = queue_row(listo, other)
    assert (row["Status"], row["AttemptCount"]) == ("failed", 3)
    assert row["LastError"] == f"Retry exhausted after 3 attempts. Last error: {error}"


@pytest.mark.req("S2-121")
def test_a_message_that_a_provider_had_taken_keeps_its_id(listo: Listo, alerts: Alerts) -> None:
    listo.sns.default = Reply(400, body=SNS_REFUSAL, headers={"Content-Type": "text/xml"})
    known, sid = vendors.texted(listo)
    assert vendors.twilio(listo, sid, "undelivered", ErrorCode="30003").status == 200
    (alert,) = alerts.until(known)
    twilio, sns = alert["providerAttempts"]
    assert (twilio["provider"], twilio["messageId"]) == ("Twilio", sid)
    assert "30003" in twilio["error"]
    assert (sns["provider"], sns["messageId"]) == ("AWS_SNS", None)
    assert sns["error"] == alert["lastError"]


SNS_REFUSAL = (
    '<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type>'
    "<Code>InvalidParameter</Code><Message>invalid_number</Message></Error><RequestId>r-1</RequestId></ErrorResponse>"
)


@pytest.mark.req("S2-123")
def test_a_synchronous_failure_is_stored_and_told_to_its_caller_alone(listo: Listo, alerts: Alerts) -> None:
    reply = listo.send("order_confirmed", "email", synchronous=True, data={"orderNumber": "3"})
    assert reply.status in {502, 504}
    (known,) = [row["Id"] for row in listo.rows('SELECT * FROM "NotificationQueue"') if row["AttemptCount"] == 1]
    assert queue_row(listo, known)["Status"] == "failed"
    # A later failure that is told shows that the silent one has been passed by.
    later = listo.sent("order_confirmed", "email", data={"orderNumber": "4"})
    alerts.until(later)
    assert alerts.about(known) == []


@pytest.mark.req("S2-112", "S2-114")
def test_the_story_of_a_failure_has_every_field(listo: Listo) -> None:
    known = listo.sent("order_confirmed", "email", userId="u-8", data={"orderNumber": "5"}, priority="normal")
    queued = listo.story(known)
    assert queued["status"] == "queued"
    story = listo.until(known, "failed")
    assert story.keys() >= SHOWN
    assert (story["id"], story["userId"], story["tenantId"]) == (known, "u-8", None)
    assert (story["channel"], story["templateKey"], story["priority"]) == ("email", "order_confirmed", "normal")
    assert (story["locale"], story["attemptCount"]) == ("en-US", 6)
    assert story["providerNames"] == ["SendGrid", "AZURE_ACS"]
    assert story["lastError"] == queue_row(listo, known)["LastError"]
    assert (story["sentAt"], story["deliveredAt"]) == (None, None)
    assert story["createdAt"] < story["lastAttemptAt"] <= story["failedAt"]
    missing = listo.client.get("/api/v1/notifications/no-such-id")
    assert (missing.status, missing.body["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.req("S2-112", "S2-114")
def test_the_story_of_a_success_has_every_field(listo: Listo) -> None:
    known = listo.sent("order_confirmed", "push", data={"orderNumber": "6"})
    story = listo.until(known, "delivered")
    assert story["providerNames"] == ["FCM"]
    assert len(story["providerMessageIds"]) == 1
    assert story["providerMessageIds"][0] is not None
    assert (story["attemptCount"], story["lastError"], story["failedAt"]) == (1, None, None)
    assert story["createdAt"] <= story["sentAt"]
    assert story["deliveredAt"] == story["sentAt"]
    row = queue_row(listo, known)
    assert (row["Status"], row["LastError"], row["FailedAt"]) == ("delivered", None, None)


@pytest.mark.req("S2-113")
def test_notifications_are_listed_by_channel_and_status(listo: Listo) -> None:
    failed = listo.sent("order_confirmed", "email", data={"orderNumber": "7"})
    listo.until(failed, "failed")
    sent = listo.sent("order_confirmed", "push", data={"orderNumber": "8"})
    listo.until(sent, "delivered")
    page = listo.client.get("/api/v1/notifications?page=1&pageSize=1&channel=email&status=failed").body
    assert page.keys() == {"items", "totalCount", "pageNumber", "pageSize", "totalPages", "nextCursor"}
    assert [item["id"] for item in page["items"]] == [failed]
    assert (page["pageNumber"], page["pageSize"]) == (1, 1)
    assert page["totalPages"] == page["totalCount"]
    delivered = listo.client.get("/api/v1/notifications?channel=push&status=delivered").body
    assert sent in [item["id"] for item in delivered["items"]]
    assert all(item["status"] == "delivered" and item["channel"] == "push" for item in delivered["items"])
    assert listo.client.get("/api/v1/notifications?status=exploded").status == 400


@pytest.mark.req("S2-119")
def test_without_redis_the_log_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("listo")
    with Listo(folder, f"sqlite:///{folder / 'listo.db'}", PATIENT) as stand:
        stand.sendgrid.default = stand.acs.default = DOWN
        program = stand.start()
        known = stand.sent("order_confirmed", "email", data={"orderNumber": "9"})
        line = program.wait_for("NotificationFailed")
    assert (line["notificationId"], line["attemptCount"], line["eventType"]) == (known, 6, "NotificationFailed")
    assert [each["provider"] for each in line["providerAttempts"]] == ["SendGrid", "AZURE_ACS"]
