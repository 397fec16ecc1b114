"""The listo blueprint's reports about pushes, and Azure's about mails, from outside."""

import time

import pytest

from tests.support import acs_stub
from tests.support import listo_callbacks as vendors
from tests.support.listo_stand import Listo, shared_fixture

listo = shared_fixture()


@pytest.mark.req("S2-95", "S2-97")
def test_a_push_is_delivered(listo: Listo) -> None:
    one, message = vendors.pushed(listo)
    reply = vendors.relay(listo, {"messageId": message, "status": "delivered", "timestamp": time.time()})
    assert (reply.status, reply.body) == (200, b"")
    story = listo.story(one)
    assert story["status"] == "delivered"
    assert vendors.route_of(listo, one)["receipt"] == "delivered"


@pytest.mark.req("S2-98")
def test_a_failed_push_is_tried_again_until_its_budget_is_used(listo: Listo) -> None:
    one, message = vendors.pushed(listo)
    budget = vendors.route_of(listo, one)["max_attempts"]
    sends = len(listo.fcm.sends)
    for attempt in range(2, budget + 1):
        report = {"messageId": message, "status": "failed", "error": "no network", "timestamp": time.time()}
        assert vendors.relay(listo, report).status == 200
        row = vendors.until_route(listo, one, status="published", attempt_count=attempt)
        assert (row["provider"], row["provider_message_id"]) != ("FCM", message)
        message = row["provider_message_id"]
    vendors.relay(listo, {"messageId": message, "status": "failed", "error": "no network"})
    story = listo.until(one, "failed")
    assert story["lastError"] == f"Retry exhausted after {budget} attempts. Last error: no network"
    assert len(listo.fcm.sends) == sends + budget - 1
    assert len(story["routes"][0]["attempts"]) == budget
    vendors.relay(listo, {"messageId": message, "status": "failed", "error": "again and again"})
    assert listo.story(one)["attemptCount"] == budget


@pytest.mark.req("S2-98")
def test_a_device_that_is_gone_is_not_tried_again(listo: Listo) -> None:
    one, message = vendors.pushed(listo)
    sends = len(listo.fcm.sends)
    vendors.relay(listo, {"messageId": message, "status": "failed", "error": "UNREGISTERED"})
    story = listo.until(one, "failed")
    assert len(listo.fcm.sends) == sends
    later = listo.sent("order_confirmed", "push", recipient=story["recipient"])
    assert listo.until(later, "skipped")["attemptCount"] == 0


@pytest.mark.req("S2-96")
def test_a_relay_with_another_secret_is_not_believed(listo: Listo) -> None:
    one, message = vendors.pushed(listo)
    report = {"messageId": message, "status": "failed"}
    assert vendors.relay(listo, report, secret="whsec_b3RoZXItc2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXM=").status == 401
    assert vendors.post(listo, vendors.FCM, b"{}", {"content-type": "application/json"}).status == 401
    assert vendors.route_of(listo, one)["attempt_count"] == 1
    assert vendors.receipts_of(listo, message) == []


@pytest.mark.req("S2-95")
def test_many_reports_in_one_call(listo: Listo) -> None:
    sent = [vendors.pushed(listo) for _ in range(3)]
    reports = [{"messageId": message, "status": "delivered"} for _, message in sent]
    assert vendors.relay(listo, *reports, {"status": "what"}).status == 200
    assert {vendors.route_of(listo, one)["receipt"] for one, _ in sent} == {"delivered"}


def through_azure(listo: Listo) -> tuple[str, str]:
    one, message = vendors.mailed(listo)
    vendors.sendgrid(listo, vendors.event("dropped", message))
    vendors.until_route(listo, one, provider="AZURE_ACS", status="published")
    return one, listo.story(one)["providerMessageIds"][-1]


def test_event_grid_is_greeted(listo: Listo) -> None:
    reply = vendors.azure(listo, acs_stub.handshake("0000-1111"))
    assert (reply.status, reply.body) == (200, {"validationResponse": "0000-1111"})
    assert vendors.azure(listo, acs_stub.handshake("0000-1111"), secret="guessed").status == 401


def test_azure_delivers(listo: Listo) -> None:
    one, message = through_azure(listo)
    # Event Grid writes ids in whichever case it likes.
    assert vendors.azure(listo, vendors.azure_report(message.upper(), "Delivered")).status == 200
    assert vendors.route_of(listo, one)["receipt"] == "delivered"


def test_what_azure_failed_is_a_new_operation(listo: Listo) -> None:
    one, message = through_azure(listo)
    mails = len(listo.acs.mails)
    assert vendors.azure(listo, vendors.azure_report(message, "Failed")).status == 200
    row = vendors.until_route(listo, one, status="published", attempt_count=3)
    assert row["provider"] == "AZURE_ACS"
    assert row["provider_message_id"] != message
    assert len(listo.acs.mails) == mails + 1


def test_what_event_grid_proves_itself_with_is_never_logged(listo: Listo) -> None:
    program = listo.programs[-1]
    mark = program.mark()
    secret = "a-wrong-secret-nobody-may-read"
    assert vendors.azure(listo, vendors.azure_report("m", "Delivered"), secret=secret).status == 401
    program.wait_for("callback_refused", since=mark)
    said = program.tail(1000)
    assert secret not in said
    assert "event-grid-brings-this-along" not in said
    assert "?secret" not in said
