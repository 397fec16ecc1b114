"""Explain from outside: the gates of a real send in their order, and nothing written or sent."""

import json
import subprocess
from typing import Any

import pytest

from tests.support.listo_stand import DOWN, EMAIL, PHONE, Listo, shared_fixture
from tests.support.process import carillon_command

listo = shared_fixture()

TABLES = (
    *("records", "routes", "attempts", "dead_letters", "malformed_intents", "suppressions", "receipts", "outbox"),
    *("templates", "preferences", "admin_actions", "api_keys", "breakers"),
)
GATES = [
    *("mode", "channel", "preferences", "recipient", "suppression", "locale", "template", "render", "idempotency"),
    *("lane", "policy", "providers", "breaker"),
]


def explain(listo: Listo, key: str = "order_confirmed", channel: str | None = "email", **fields: Any) -> Any:
    headers = fields.pop("headers", None)
    body = {"templateKey": key, "channel": channel, "recipient": EMAIL, **fields}
    body = {name: value for name, value in body.items() if value is not None}
    reply = listo.client.call("POST", "/api/v1/notifications/explain", body, headers)
    assert reply.status == 200, reply
    return reply.body


def step(said: Any, name: str) -> Any:
    (found,) = [each for each in said["steps"] if each["step"] == name]
    return found


def everything(listo: Listo) -> dict[str, list[str]]:
    return {table: [str(row) for row in listo.rows(f"SELECT * FROM {table}")] for table in TABLES}  # noqa: S608


def test_every_gate_is_named_in_order_with_what_was_found(listo: Listo) -> None:
    said = explain(listo, headers={"Accept-Language": "es-MX, en-US;q=0.9", "Idempotency-Key": "never-used"})
    assert said["outcome"] == "queued"
    assert [each["step"] for each in said["steps"]] == GATES
    assert {each["verdict"] for each in said["steps"]} == {"pass"}
    assert step(said, "mode")["detail"] == {"mode": "queued"}
    assert step(said, "recipient")["detail"]["address"] == EMAIL
    assert step(said, "locale")["detail"]["resolved"] == "es-MX"
    assert step(said, "render")["detail"]["subject"] == "Tu pedido está confirmado"
    assert step(said, "lane")["detail"]["queueName"] == "listo-notifications-queue"
    assert step(said, "idempotency")["detail"] == {"key": "never-used", "replays": None}
    order = step(said, "providers")["detail"]["order"]
    assert order == [{"provider": "SendGrid", "breaker": "closed"}, {"provider": "AZURE_ACS", "breaker": "closed"}]


def test_the_policy_shows_every_attempt_with_its_provider_and_its_wait(listo: Listo) -> None:
    policy = step(explain(listo), "policy")["detail"]
    assert (policy["policy"], policy["maxAttempts"], policy["timeoutSeconds"]) == ("*/email", 6, 30)
    assert [each["provider"] for each in policy["attempts"]] == ["SendGrid"] * 2 + ["AZURE_ACS"] * 4
    # The drill's time scale is part of what would happen.
    assert [each.get("afterSeconds") for each in policy["attempts"]] == [None, 0.1, 0.2, 0.4, 0.8, 1.6]
    assert policy["attempts"][1]["atMostSeconds"] == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("fields", "gate", "code"),
    [
        ({"channel": None}, "channel", "CHANNEL_REQUIRED"),
        ({"channel": "webhook", "recipient": "https://example.org/"}, "channel", "UNKNOWN_CHANNEL"),
        ({"recipient": None, "userId": "nobody"}, "recipient", "RECIPIENT_UNRESOLVED"),
        ({"locale": "fr-FR"}, "template", "TEMPLATE_NOT_FOUND"),
        ({"key": "newsletter"}, "render", "TEMPLATE_RENDER_ERROR"),
        ({"channel": "inApp", "recipient": "user-1", "synchronous": True}, "mode", "SYNCHRONOUS_UNAVAILABLE"),
    ],
)
def test_a_gate_that_stops_a_send_stops_here_with_the_same_words(
    listo: Listo, fields: dict[str, Any], gate: str, code: str
) -> None:
    said = explain(listo, **fields)
    assert (said["outcome"], said["code"]) == ("rejected", code)
    stopped = [each for each in said["steps"] if each["verdict"] == "stop"]
    assert [each["step"] for each in stopped] == [gate]
    real = listo.send(**{"channel": "email", "recipient": EMAIL, **fields})
    assert (real.body["error"]["code"], real.body["error"]["message"]) == (code, said["message"])


def test_a_key_that_was_used_would_replay_or_conflict(listo: Listo) -> None:
    headers = {"Idempotency-Key": "explain-1"}
    first = listo.sent(headers=headers)
    said = explain(listo, headers=headers)
    assert said["outcome"] == "replayed"
    assert step(said, "idempotency") == {
        "step": "idempotency",
        "verdict": "note",
        "detail": {"key": "explain-1", "replays": first},
    }
    other = explain(listo, locale="es-MX", headers=headers)
    assert (other["outcome"], other["code"]) == ("rejected", "IDEMPOTENCY_CONFLICT")
    listo.until(first, "delivered")


def test_a_use_case_is_synchronous_by_itself(listo: Listo) -> None:
    said = explain(listo, "login_otp", "sms", recipient=PHONE, data={"code": "123456"}, serviceOrigin="auth")
    assert said["outcome"] == "delivered"
    assert step(said, "mode")["detail"] == {"mode": "synchronous", "because": "of its use case"}
    assert step(said, "lane")["detail"]["queueName"] is None
    policy = step(said, "policy")["detail"]
    assert (policy["policy"], policy["maxAttempts"], policy["timeoutSeconds"]) == ("auth/sms", 1, 2)


def test_nothing_is_written_and_nothing_is_sent(listo: Listo) -> None:
    listo.until(listo.sent(), "delivered")
    before, mails = everything(listo), len(listo.sendgrid.entries)
    explain(listo, headers={"Idempotency-Key": "explain-nothing"})
    explain(listo, locale="fr-FR")
    explain(listo, "login_otp", "sms", recipient=PHONE, data={"code": "1"})
    explain(listo, recipient=None, userId="user-1")
    assert everything(listo) == before
    assert len(listo.sendgrid.entries) == mails
    assert not listo.twilio.entries


def test_a_dead_address_and_an_open_breaker_are_seen(listo: Listo) -> None:
    dead = "+15005550004"
    listo.until(listo.sent("order_confirmed", "sms", recipient=dead), "failed")
    said = explain(listo, "order_confirmed", "sms", recipient=dead)
    assert said["outcome"] == "skipped"
    held = step(said, "suppression")
    # Explain and the story call the gate by one name.
    assert (held["verdict"], held["gate"], said["routes"][0]["gate"]) == ("stop", "suppressed", "suppressed")
    assert "gate" not in step(said, "locale")
    listo.fcm.answer(*[DOWN] * 20, path="/v1/")
    for number in range(4):
        listo.until(listo.sent("order_confirmed", "push", serviceOrigin="orders", data={"n": number}), "failed")
    said = explain(listo, "order_confirmed", "push", recipient="device-token-0002")
    assert step(said, "providers")["detail"]["order"] == [{"provider": "FCM", "breaker": "open"}]
    assert (said["outcome"], step(said, "breaker")["verdict"]) == ("failed", "stop")


def test_the_command_line_says_the_same(listo: Listo) -> None:
    command = [*carillon_command(), "send", "order_confirmed", "--channel", "email", "--to", EMAIL, "--dry-run"]
    said = subprocess.run(
        [*command, "--json", "--url", listo.address], capture_output=True, text=True, check=True, timeout=60
    )
    assert [each["step"] for each in json.loads(said.stdout)["steps"]] == GATES
    shown = subprocess.run(
        [*command, "--locale", "fr-FR", "--url", listo.address], capture_output=True, text=True, check=False, timeout=60
    )
    assert shown.returncode == 1
    assert "would be rejected: Template order_confirmed not found for locale fr-FR" in shown.stdout
