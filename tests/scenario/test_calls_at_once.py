"""A provider with few connections and many messages: nobody's time runs out while a message waits for a connection."""

import pytest

from tests.support.mail_stand import MailStand, stand_fixture

SECONDS = 0.4
MANY = 15

stand = stand_fixture(
    """
[providers.smtp]
kind = "smtp"
connections = 1
[lanes.standard]
timeout_seconds = 3.0
"""
)


@pytest.mark.req("P-600")
def test_a_mail_that_waits_for_a_connection_has_all_its_time_left(stand: MailStand) -> None:
    stand.smtp.data_seconds = SECONDS
    items = [
        {"templateKey": "order", "channel": "email", "recipient": f"person{n}@example.com", "data": {"number": "7"}}
        for n in range(MANY)
    ]
    reply = stand.client.call("POST", "/api/v1/notifications/batch", {"notifications": items})
    assert reply.status == 202, reply
    assert MANY * SECONDS > 3.0, "the last one waits for longer than a call may take"
    for each in reply.body["results"]:
        story = stand.until(each["notificationId"], "delivered")
        assert [attempt["provider"] for route in story["routes"] for attempt in route["attempts"]] == ["smtp"], story
