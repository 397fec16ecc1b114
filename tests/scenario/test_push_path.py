"""The push worker's path from the queue to FCM, from outside."""

import json
from typing import Any

import pytest

from tests.support.fcm_stub import PROJECT, SERVER_KEY, fcm_error
from tests.support.push_stand import SEED_MESSAGE, Push, message, stand_fixture

push: Any = stand_fixture(params=("postgres", "sqlite"))


@pytest.mark.req("S0-01", "S0-06", "S0-15", "S0-23", "S0-30", "S0-33", "S0-34", "S0-50", "S0-19", "S0-22", "S0-10")
def test_the_seeds_message_becomes_the_seeds_push(push: Push) -> None:
    push.publish(SEED_MESSAGE)
    (post,) = push.fcm.wait_for(1)
    assert (post["method"], post["path"]) == ("POST", "/fcm/send")
    assert post["headers"]["authorization"] == f"key={SERVER_KEY}"
    assert post["headers"]["content-type"] == "application/json"
    assert json.loads(post["body"]) == {
        "to": "fcm_device_token_xyz123",
        "notification": {
            "title": "Welcome John Doe!",
            "body": "Hi John Doe, click https://example.com/welcome to begin.",
        },
        "data": {"trace_id": SEED_MESSAGE["trace_id"], "link": "https://example.com/welcome"},
    }
    row = push.until_audited(SEED_MESSAGE, "sent")
    assert (row["user_id"], row["notification_type"]) == (SEED_MESSAGE["user_id"], "push")
    assert (row["template_id"], row["metadata"]) == ("welcome_notification", {})
    assert row["created_at"] is not None
    push.until_mark(SEED_MESSAGE, "sent")
    push.until_empty()
    (asked,) = push.template_service.entries
    assert (asked["method"], asked["path"]) == ("GET", "/api/v1/templates/welcome_notification")
    assert asked["headers"]["accept-language"] == "en"


@pytest.mark.req("S0-36")
def test_the_same_message_in_the_v1_form(push: Push) -> None:
    push.programs[-1].terminate()
    assert push.programs[-1].wait() == 0
    credentials = push.fcm.key_file(push.folder)
    push.start(FCM_API="", FCM_SERVER_KEY="", GOOGLE_APPLICATION_CREDENTIALS=credentials)
    push.publish(SEED_MESSAGE)
    push.until_audited(SEED_MESSAGE, "sent")
    (post,) = push.posts()
    assert post["path"] == f"/v1/projects/{PROJECT}/messages:send"
    assert post["headers"]["authorization"].startswith("Bearer ya29.")
    assert json.loads(post["body"]) == {
        "message": {
            "token": "fcm_device_token_xyz123",
            "notification": {
                "title": "Welcome John Doe!",
                "body": "Hi John Doe, click https://example.com/welcome to begin.",
            },
            "data": {"trace_id": SEED_MESSAGE["trace_id"], "link": "https://example.com/welcome"},
        }
    }
    gone = message(recipient="device-that-is-gone")
    push.fcm.devices["device-that-is-gone"] = fcm_error("UNREGISTERED")
    push.publish(gone)
    assert push.dead(gone)["failure_reason"] == "FCM rejected: UNREGISTERED"
    assert push.pushed(gone) == 1
