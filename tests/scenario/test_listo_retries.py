"""The listo blueprint's retries from outside: policies, waits, timeouts, and what happens when the process stops."""

import json
from typing import Any

import pytest

from tests.support import sendgrid_stub, twilio_stub
from tests.support.listo_stand import DOWN, HANGS, Listo, shared_fixture
from tests.support.process import run_carillon
from tests.support.vendor import Reply
from tests.support.waiting import wait_until

# No breaker opens here: every failure is a retry.
CALM = "".join(
    f"[policy.breaker.{name}]\nfailure_threshold = 1000000\n"
    for name in ("twilio", "aws_sns", "sendgrid", "azure_acs", "fcm")
)
listo = shared_fixture(CALM)

DOCUMENT = {
    ("auth", "sms"): (4, 3, 2.0, 120, 1000, 20),
    ("*", "email"): (6, 5, 2.0, 600, 1000, 30),
    ("orders", "push"): (3, 2, 2.0, 300, 500, 15),
    ("*", "*"): (6, 5, 2.0, 600, 1000, 30),
}
FIELDS = ("maxAttempts", "baseDelaySeconds", "backoffFactor", "maxBackoffSeconds", "jitterMs", "timeoutSeconds")


def attempts(story: Any) -> list[Any]:
    return list(story["routes"][0]["attempts"])


@pytest.mark.req("S2-37", "S2-38", "S2-39", "S2-40", "S2-41")
def test_the_documents_policies_are_shipped_under_its_own_names() -> None:
    said = run_carillon(["listo", "policies"], check=True, timeout=60)
    policies = json.loads(said.stdout)
    assert {
        (each["serviceOrigin"], each["channel"]): tuple(each[name] for name in FIELDS) for each in policies
    } == DOCUMENT
    assert all(each["enabled"] for each in policies)


@pytest.mark.req("S2-42", "S2-43", "S2-46", "S2-32", "S2-65")
@pytest.mark.parametrize(
    ("origin", "channel", "priority", "expected"),
    [
        ("auth", "sms", "normal", 4),
        ("auth", "sms", "high", 4),
        ("orders", "push", "normal", 3),
        ("orders", "push", "low", 3),
        ("products", "email", "normal", 6),
        ("products", "email", "high", 3),
        ("auth", "push", "normal", 6),
        ("auth", "push", "high", 3),
    ],
)
def test_the_budget_is_the_policys_unless_a_wildcard_meets_a_mode(
    listo: Listo, origin: str, channel: str, priority: str, expected: int
) -> None:
    listo.down(expected)
    key = "password_changed" if channel == "sms" else "order_confirmed"
    sent = listo.sent(key, channel, serviceOrigin=origin, priority=priority)
    story = listo.until(sent, "failed", timeout=60)
    listo.up()
    assert story["attemptCount"] == len(attempts(story)) == expected
    assert story["lastError"].startswith(f"Retry exhausted after {expected} attempts. Last error: ")


@pytest.mark.req("S2-44", "S2-48", "S2-35", "S2-69", "S2-70")
def test_waits_grow_and_are_never_alike(listo: Listo) -> None:
    listo.fcm.answer(*[DOWN] * 12, path="/v1/")
    ids = [listo.sent("order_confirmed", "push", serviceOrigin="auth", data={"n": n}) for n in range(2)]
    stories = [listo.until(each, "failed", timeout=60) for each in ids]
    waits = [[each["nextTryInMs"] for each in attempts(story)] for story in stories]
    for found in waits:
        assert found[-1] is None
        for number, wait in enumerate(found[:-1]):
            least = 5000 * 2**number * 0.02
            assert least <= wait <= least + 1000 * 0.02 + 1
    assert waits[0] != waits[1]
    story = stories[0]
    assert [each["number"] for each in attempts(story)] == [1, 2, 3, 4, 5, 6]
    assert story["lastAttemptAt"] == attempts(story)[-1]["startedAt"]
    lines = [line for line in listo.programs[-1].events("route_attempted") if line["notification_id"] == ids[0]]
    assert [(line["provider"], line["attempt"], line["outcome"]) for line in lines] == [
        ("FCM", number, "unavailable") for number in range(1, 7)
    ]
    assert [line.get("delay_seconds") is not None for line in lines] == [True] * 5 + [False]


@pytest.mark.req("S2-49")
@pytest.mark.parametrize(
    ("channel", "answer", "providers"),
    [
        ("sms", twilio_stub.error(20003), ["Twilio", "AWS_SNS"]),
        ("email", sendgrid_stub.complaint(401, "no"), ["SendGrid", "AZURE_ACS"]),
    ],
)
def test_what_a_vendor_will_never_take_goes_to_the_other_at_once(
    listo: Listo, channel: str, answer: Reply, providers: list[str]
) -> None:
    (listo.twilio if channel == "sms" else listo.sendgrid).answer(answer)
    story = listo.until(listo.sent("order_confirmed", channel), "delivered")
    assert [(each["provider"], each["outcome"]) for each in attempts(story)] == [
        (providers[0], "refused"),
        (providers[1], "sent"),
    ]
    assert attempts(story)[0]["nextTryInMs"] == 0


@pytest.mark.req("S2-47", "S2-21")
def test_a_call_is_given_up_after_the_policys_time(listo: Listo) -> None:
    # Another program would claim the message now and then, and wait for its own time.
    listo.programs.pop().close()
    listo.start(CARILLON_LANES__PRIORITY__TIMEOUT_SECONDS="2")
    listo.sendgrid.answer(HANGS)
    story = listo.until(listo.sent(priority="high"), "delivered", timeout=60)
    first = attempts(story)[0]
    assert (first["outcome"], first["classification"]) == ("unknown", "timeout")
    assert 1950 <= first["durationMs"] <= 8000
    listo.programs.pop().close()
    listo.start()


@pytest.mark.req("S2-36", "S2-33")
def test_a_shutdown_in_the_middle_of_a_wait_loses_nothing(listo: Listo) -> None:
    listo.add_template("waiting", "push", "As it was written.")
    program = listo.start(CARILLON_DRILL__TIME_SCALE="0.2")
    listo.programs[0].close()
    listo.fcm.answer(DOWN, path="/v1/")
    sent = listo.sent("waiting", "push", serviceOrigin="orders")
    wait_until(lambda: listo.story(sent)["attemptCount"] == 1, timeout=40, what="the first attempt")
    program.terminate()
    assert program.wait() == 0
    (route,) = listo.rows(f"SELECT * FROM routes WHERE notification_id = '{sent}'")  # noqa: S608 - an id of ours
    assert (route["status"], route["claim_token"]) == ("failed", None)
    listo.add_template("waiting", "push", "As it is written now.")
    listo.start()
    story = listo.until(sent, "delivered", timeout=60)
    assert [each["outcome"] for each in attempts(story)] == ["unavailable", "sent"]
    assert json.loads(listo.calls("FCM")[-1]["body"])["message"]["notification"]["body"] == "As it was written."


@pytest.mark.req("S2-42")
def test_a_policy_that_is_switched_off_is_passed_over(listo: Listo) -> None:
    settings = listo.folder / "listo.toml"
    text = settings.read_text()
    settings.write_text(f'{text}\n[policy.retry."orders/push"]\nenabled = false\n')
    listo.start()
    settings.write_text(text)
    body = {
        "templateKey": "order_confirmed",
        "channel": "push",
        "recipient": "device-token-9",
        "serviceOrigin": "orders",
    }
    said = listo.client.call("POST", "/api/v1/notifications/explain", body).body
    (policy,) = [each["detail"] for each in said["steps"] if each["step"] == "policy"]
    assert (policy["policy"], policy["maxAttempts"]) == ("*/*", 6)
    listo.programs.pop().close()
