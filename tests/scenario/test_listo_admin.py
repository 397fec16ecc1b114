"""The listo blueprint's manual retry and what administrators see, from outside: Scenario 6 and everything around it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.client import Reply
from tests.support.listo_stand import DEVICE, DOWN, SECRET, Listo, shared_fixture, token
from tests.support.process import run_carillon
from tests.support.vendor import Reply as VendorReply
from tests.support.vendor import Vendor

# Breakers that stay closed, so that every budget is used up.
SETTINGS = """
[policy.retry."*/*"]
open_after_retries = false
[policy.retry."*/email"]
open_after_retries = false
[policy.breaker.twilio]
failure_threshold = 100000
[policy.breaker.aws_sns]
failure_threshold = 100000
[policy.breaker.sendgrid]
failure_threshold = 100000
[policy.breaker.azure_acs]
failure_threshold = 100000
"""
A_MILLISECOND = timedelta(milliseconds=1)
"""Moments are kept in whole ones."""
listo = shared_fixture(SETTINGS, scale=0.005, JWT_SECRET_KEY=SECRET)
ADMIN = token("ops@example.org", role="admin")
OVERRIDE = {"X-Admin-Override": "true"}
USER = token("user-1")
REASON = "Customer escalation - retry with secondary provider"


def failed(stand: Listo, channel: str = "sms", headers: dict[str, str] | None = None, **fields: Any) -> str:
    """A notification that used up its budget while all of its channel's providers were down."""
    stubs: list[Vendor] = [stand.twilio, stand.sns] if channel == "sms" else [stand.sendgrid, stand.acs]
    before = [stub.default for stub in stubs]
    for stub in stubs:
        stub.default = DOWN
    data = {"orderNumber": "1", "title": "News", "text": "None"}
    known = stand.sent("order_confirmed", channel, headers=headers or ADMIN, data=data, **fields)
    stand.until(known, "failed", headers=ADMIN)
    for stub, speak in zip(stubs, before, strict=True):
        stub.default = speak
    return known


def retry(stand: Listo, known: str, headers: dict[str, str] | None = None, **body: Any) -> Reply:
    sent = {"reason": REASON, **body}
    given = ADMIN | OVERRIDE if headers is None else headers
    body_of = {name: value for name, value in sent.items() if value is not None}
    return stand.client.call("POST", f"/api/v1/admin/notifications/{known}/retry", body_of, given)


def admin(stand: Listo, path: str, headers: dict[str, str] | None = None) -> Any:
    reply = stand.client.get(f"/api/v1/admin/{path}", ADMIN if headers is None else headers)
    assert reply.status == 200, reply
    return reply.body


def code(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.body["error"]["code"]


@pytest.mark.req("S2-124", "S2-125", "S2-128", "S2-130", "S2-132", "S2-138")
def test_scenario_six(listo: Listo) -> None:
    known = failed(listo)
    history = listo.story(known, ADMIN)["routes"][0]["attempts"]
    calls = len(listo.twilio.entries)
    reply = retry(listo, known, forceProvider="AWS_SNS")
    assert reply.status == 200
    assert reply.body.keys() == {
        *("success", "notificationId", "retryAttemptId", "status", "estimatedDeliveryTime"),
    }
    assert (reply.body["success"], reply.body["notificationId"], reply.body["status"]) == (True, known, "queued")
    story = listo.until(known, "delivered", headers=ADMIN)
    assert len(listo.twilio.entries) == calls
    attempts = story["routes"][0]["attempts"]
    assert attempts[: len(history)] == history
    assert [(each["provider"], each["number"]) for each in attempts[len(history) :]] == [("AWS_SNS", 1)]
    assert story["id"] == known
    due = datetime.fromisoformat(reply.body["estimatedDeliveryTime"])
    began = datetime.fromisoformat(attempts[-1]["startedAt"])
    assert abs(due - began - timedelta(seconds=30)) < timedelta(seconds=10)


@pytest.mark.req("S2-130")
def test_a_retry_has_the_whole_budget_and_may_fail_again(listo: Listo) -> None:
    known = failed(listo, "email")
    first = listo.story(known, ADMIN)
    listo.sendgrid.default, speak = DOWN, listo.sendgrid.default
    listo.acs.default, other = DOWN, listo.acs.default
    try:
        assert retry(listo, known).status == 200
        again = listo.until(known, "failed", headers=ADMIN)
    finally:
        listo.sendgrid.default, listo.acs.default = speak, other
    assert (first["attemptCount"], again["attemptCount"]) == (6, 12)
    assert len(again["routes"][0]["attempts"]) == 12
    assert again["failedAt"] > first["failedAt"]


@pytest.mark.req("S2-126")
def test_who_may_retry(listo: Listo) -> None:
    known = failed(listo)
    assert code(retry(listo, known, OVERRIDE)) == (401, "UNAUTHORIZED")
    assert code(retry(listo, known, {"Authorization": "Bearer forged"} | OVERRIDE)) == (401, "UNAUTHORIZED")
    assert code(retry(listo, known, USER | OVERRIDE)) == (403, "FORBIDDEN")
    assert code(retry(listo, known, ADMIN)) == (403, "ADMIN_OVERRIDE_REQUIRED")
    assert code(retry(listo, known, ADMIN | {"X-Admin-Override": "false"})) == (403, "ADMIN_OVERRIDE_REQUIRED")
    assert listo.story(known, ADMIN)["status"] == "failed"
    assert retry(listo, known).status == 200


@pytest.mark.req("S2-127")
def test_the_reason_is_required_and_kept(listo: Listo) -> None:
    known = failed(listo)
    for missing in (None, "", "   "):
        assert code(retry(listo, known, reason=missing)) == (400, "VALIDATION_ERROR")
    assert admin(listo, f"audit?subject={known}")["totalCount"] == 0
    reply = retry(listo, known, forceProvider="AWS_SNS")
    (row,) = admin(listo, f"audit?subject={known}")["items"]
    assert (row["actor"], row["action"], row["reason"]) == ("ops@example.org", "retry", REASON)
    assert row["detail"] == {
        "retryAttemptId": reply.body["retryAttemptId"],
        "forceProvider": "AWS_SNS",
        "redriven": 1,
    }
    written = listo.rows("SELECT * FROM admin_actions ORDER BY action_id")
    (kept,) = [each for each in written if each["subject"] == known]
    assert kept["at"] is not None
    assert listo.client.get("/api/v1/admin/audit", USER).status == 403


@pytest.mark.req("S2-128", "S2-129")
def test_what_cannot_be_retried(listo: Listo) -> None:
    known = failed(listo)
    assert code(retry(listo, known, forceProvider="Pigeon")) == (400, "UNKNOWN_PROVIDER")
    assert code(retry(listo, known, forceProvider="SendGrid")) == (400, "UNKNOWN_PROVIDER")
    assert code(retry(listo, "no-such-id")) == (404, "NOT_FOUND")
    sent = listo.sent("order_confirmed", "sms", headers=ADMIN, data={"orderNumber": "2"})
    listo.until(sent, "delivered", headers=ADMIN)
    assert code(retry(listo, sent)) == (409, "NOT_RETRYABLE")
    assert retry(listo, known).status == 200
    listo.until(known, "delivered", headers=ADMIN)
    assert code(retry(listo, known)) == (409, "NOT_RETRYABLE")


@pytest.mark.req("S2-131")
def test_failed_notifications_are_listed(listo: Listo) -> None:
    before = datetime.now().astimezone()
    sms, mail = failed(listo, "sms"), failed(listo, "email")
    after = before.isoformat().replace("+", "%2B")
    page = admin(listo, f"failed-notifications?pageNumber=1&pageSize=10&failedAfter={after}")
    assert page.keys() == {"items", "totalCount", "pageNumber", "pageSize", "totalPages", "nextCursor"}
    assert {sms, mail} <= {item["id"] for item in page["items"]}
    assert page["items"] == sorted(page["items"], key=lambda item: item["failedAt"], reverse=True)
    (row,) = [item for item in page["items"] if item["id"] == mail]
    assert (row["channel"], row["status"], row["attemptCount"], row["provider"]) == ("email", "failed", 6, "AZURE_ACS")
    assert row["lastError"].startswith("Retry exhausted after 6 attempts. Last error: ")
    only = admin(listo, f"failed-notifications?channel=sms&failedAfter={after}")
    assert [item["id"] for item in only["items"]] == [sms]
    assert admin(listo, "failed-notifications?failedAfter=2100-01-01T00:00:00Z")["totalCount"] == 0
    assert listo.client.get("/api/v1/admin/failed-notifications", USER).status == 403
    assert listo.client.get("/api/v1/admin/failed-notifications?failedAfter=yesterday", ADMIN).status == 400


def redrive(stand: Listo, headers: dict[str, str] | None = None, **body: Any) -> Reply:
    given = ADMIN | OVERRIDE if headers is None else headers
    return stand.client.call("POST", "/api/v1/admin/redrive", {"reason": "provider is back", **body}, given)


def test_many_are_counted_first_and_then_redriven(listo: Listo) -> None:
    ids = [failed(listo, "email", templateKey="newsletter") for _ in range(2)]
    other = failed(listo, "sms")
    chosen: dict[str, Any] = {"channel": "email", "templateKey": "newsletter"}
    counted = redrive(listo, dryRun=True, **chosen).body
    assert (counted["dryRun"], counted["matched"], counted["redriven"], counted["actionId"]) == (True, 2, 0, None)
    assert sum(cause["count"] for cause in counted["byCause"]) == 2
    assert all(listo.story(known, ADMIN)["status"] == "failed" for known in ids)
    done = redrive(listo, **chosen).body
    assert (done["matched"], done["redriven"]) == (2, 2)
    for known in ids:
        listo.until(known, "delivered", headers=ADMIN)
    assert listo.story(other, ADMIN)["status"] == "failed"
    (row,) = [each for each in admin(listo, "audit?action=redrive")["items"] if each["id"] == done["actionId"]]
    assert (row["actor"], row["reason"], row["detail"]["redriven"]) == ("ops@example.org", "provider is back", 2)
    assert code(redrive(listo, ADMIN)) == (403, "ADMIN_OVERRIDE_REQUIRED")
    assert redrive(listo, reason=None).status == 400


def test_a_rate_spreads_them_over_time(listo: Listo) -> None:
    ids = [failed(listo, "email", templateKey="newsletter") for _ in range(3)]
    before = datetime.now(UTC)
    # Turns far enough apart to be looked at before they come.
    done = redrive(listo, channel="email", templateKey="newsletter", ratePerSecond=0.2).body
    assert done["redriven"] == 3
    waits = [listo.story(known, ADMIN)["routes"][0]["nextAttemptAt"] for known in ids]
    assert waits[1] is not None
    assert waits[2] == done["lastTurnAt"]
    for known in ids:
        listo.until(known, "delivered", headers=ADMIN, timeout=60)
    times = [datetime.fromisoformat(listo.story(known, ADMIN)["sentAt"]) for known in ids]
    for turn, at in enumerate(times):
        assert at - before >= timedelta(seconds=5 * turn) - A_MILLISECOND


@pytest.mark.req("S2-117", "S2-126")
def test_a_tenants_administrator_sees_and_changes_its_own_only(listo: Listo) -> None:
    mine, theirs = token("a", role="admin", tenant="t-a"), token("b", role="admin", tenant="t-b")
    known = failed(listo, "email", headers=mine)
    assert code(retry(listo, known, theirs | OVERRIDE)) == (404, "NOT_FOUND")
    assert known not in {item["id"] for item in admin(listo, "failed-notifications", theirs)["items"]}
    assert [item["id"] for item in admin(listo, "failed-notifications", mine)["items"]] == [known]
    assert redrive(listo, theirs | OVERRIDE).body["matched"] == 0
    assert redrive(listo, theirs | OVERRIDE, tenantId="t-a").status == 403
    assert redrive(listo, mine | OVERRIDE, dryRun=True).body["matched"] == 1
    assert retry(listo, known, mine | OVERRIDE).status == 200
    assert admin(listo, f"audit?subject={known}", theirs)["totalCount"] == 0
    (row,) = admin(listo, f"audit?subject={known}", mine)["items"]
    assert (row["actor"], row["tenantId"]) == ("a", "t-a")


def test_a_tenants_administrator_redrives_its_own_by_name_only(listo: Listo) -> None:
    mine, theirs = token("a", role="admin", tenant="t-c"), token("b", role="admin", tenant="t-d")
    failed(listo, "email", headers=mine)
    (item,) = admin(listo, "failed-notifications", mine)["items"]
    body = {"items": [{"notificationId": item["id"], "routeId": item["routeId"]}]}
    assert listo.client.call("POST", "/api/v1/dead-letters/redrive", body, theirs).body == {"redriven": 0}
    assert admin(listo, "failed-notifications", mine)["totalCount"] == 1
    assert listo.client.call("POST", "/api/v1/dead-letters/redrive", body, mine).body == {"redriven": 1}
    assert admin(listo, "audit?action=redrive", theirs)["totalCount"] == 0
    (row,) = admin(listo, "audit?action=redrive", mine)["items"]
    assert (row["actor"], row["tenantId"], row["detail"]["chosen"]) == ("a", "t-c", 1)


@pytest.mark.req("S2-62")
def test_providers_show_what_their_newest_attempts_say(listo: Listo) -> None:
    failed(listo, "email")
    items = admin(listo, "providers")["items"]
    assert [(item["channel"], item["provider"], item["position"]) for item in items] == [
        ("email", "SendGrid", 0),
        ("email", "AZURE_ACS", 1),
        ("inApp", "inbox", 0),
        ("push", "FCM", 0),
        ("sms", "Twilio", 0),
        ("sms", "AWS_SNS", 1),
    ]
    grid, acs = items[0], items[1]
    assert grid["failures"] >= 2
    assert acs["lastOutcome"] in {"unavailable", "sent"}
    assert acs["lastAttemptAt"] is not None
    assert round(grid["share"] + acs["share"], 3) == 1.0
    assert listo.client.get("/api/v1/admin/providers", USER).status == 403


@pytest.mark.req("S2-62")
def test_a_provider_that_refuses_is_not_shown_as_well(listo: Listo) -> None:
    """Its breaker stays closed, because the provider works; the operator sees what it refused all the same."""
    before = admin(listo, "providers")["items"][3]
    listo.fcm.answer(VendorReply(400, body={"error": {"status": "INVALID_ARGUMENT", "message": "no"}}), path="/v1/")
    assert listo.send("driver_assigned", "push", recipient=DEVICE, headers=ADMIN).status == 502
    after = admin(listo, "providers")["items"][3]
    assert (after["provider"], after["state"], after["lastOutcome"]) == ("FCM", "closed", "refused")
    assert after["refusals"] == before["refusals"] + 1
    assert after["failures"] == before["failures"]
    assert sum(one["count"] for one in after["errors"]) == after["refusals"] + after["failures"]


def operate(stand: Listo, *args: str) -> str:
    config = str(stand.folder / "listo.toml")
    environment = {"PATH": "/usr/bin:/bin", **stand.environment()}
    done = run_carillon(["dead-letters", "redrive", *args, "--config", config], env=environment, timeout=60)
    return done.stdout or done.stderr


def test_the_command_line_redrives_at_a_rate_and_is_written_down(listo: Listo) -> None:
    ids = [failed(listo, "email", templateKey="newsletter") for _ in range(2)]
    assert "--rate fast" in operate(listo, "--all", "--rate", "fast")
    number = admin(listo, "failed-notifications?channel=email")["totalCount"]
    chosen = ("--all", "--channel", "email")
    assert operate(listo, *chosen, "--dry-run") == f"{number} dead letters found, 0 redriven (dry run)\n"
    before = datetime.now(UTC)
    assert operate(listo, *chosen, "--rate", "2/s", "--reason", "back") == (
        f"{number} dead letters found, {number} redriven\n"
    )
    for known in ids:
        listo.until(known, "delivered", headers=ADMIN)
    sent = [datetime.fromisoformat(listo.story(known, ADMIN)["sentAt"]) for known in ids]
    # Each in its turn, the oldest first: a busy machine may be late with one, never early.
    for turn, at in enumerate(sent, number - len(sent)):
        assert at - before >= timedelta(seconds=0.5 * turn) - A_MILLISECOND
    row = admin(listo, "audit?action=redrive")["items"][0]
    assert (row["reason"], row["detail"]["redriven"]) == ("back", number)
    assert row["actor"].startswith("cli:")
