"""The listo blueprint's Twilio callbacks from outside: believed by signature, ranked, and a failure goes to AWS SNS."""

import pytest

from tests.support import listo_callbacks as vendors
from tests.support import twilio_stub
from tests.support.listo_stand import Listo, shared_fixture

listo = shared_fixture()

EMPTY = (200, b"")


@pytest.mark.req("S2-72", "S2-76", "S2-81")
def test_progress_is_shown_and_never_goes_back(listo: Listo) -> None:
    one, sid = vendors.texted(listo)
    for status in ("queued", "sending", "sent", "delivered", "sent", "accepted", "scheduled"):
        reply = vendors.twilio(listo, sid, status, RawDlrDoneDate="2411162355", Unheard="of")
        assert (reply.status, reply.body) == EMPTY
    assert listo.story(one)["status"] == "delivered"
    route = vendors.route_of(listo, one)
    assert (route["receipt"], route["status"], route["attempt_count"]) == ("delivered", "published", 1)


@pytest.mark.req("S2-77", "S2-78", "S2-82", "S2-136")
@pytest.mark.parametrize("status", ["failed", "undelivered"])
def test_scenario_four(listo: Listo, status: str) -> None:
    one, sid = vendors.texted(listo)
    texts = len(listo.sns.messages)
    program = listo.programs[-1]
    mark = program.mark()
    reply = vendors.twilio(listo, sid, status, ErrorCode="30005", ErrorMessage="Unknown destination handset")
    assert (reply.status, reply.body) == EMPTY
    line = program.wait_for("receipt_taken", lambda line: line["notification_id"] == one, since=mark)
    assert line["level"] == "warning"
    assert line["message"] == f"Twilio delivery failed for {sid}. Auto-retrying with secondary provider"
    program.wait_for("route_attempted", lambda line: line["notification_id"] == one, since=mark)
    story = listo.until(one, "delivered")
    assert len(listo.sns.messages) == texts + 1
    (sns_id,) = list(listo.sns.messages)[-1:]
    assert story["providerMessageIds"] == [sid, sns_id]
    assert story["providerNames"] == ["Twilio", "AWS_SNS"]
    assert (story["id"], story["attemptCount"]) == (one, 2)


@pytest.mark.req("S2-80")
def test_replays_and_disorder_are_harmless(listo: Listo) -> None:
    one, sid = vendors.texted(listo)
    texts = len(listo.sns.messages)
    for _ in range(3):
        assert vendors.twilio(listo, sid, "failed", ErrorCode="30003").status == 200
    vendors.until_route(listo, one, status="published", attempt_count=2)
    for status in ("undelivered", "failed", "sent"):
        assert vendors.twilio(listo, sid, status, ErrorCode="30003").status == 200
    story = listo.story(one)
    assert (story["status"], story["attemptCount"]) == ("delivered", 2)
    assert len(listo.sns.messages) == texts + 1


@pytest.mark.req("S2-80")
def test_a_failure_after_delivery_is_ignored(listo: Listo) -> None:
    one, sid = vendors.texted(listo)
    texts = len(listo.sns.messages)
    vendors.twilio(listo, sid, "delivered")
    mark = listo.programs[-1].mark()
    vendors.twilio(listo, sid, "failed", ErrorCode="30003")
    listo.programs[-1].wait_for("receipt_taken", lambda line: line["effect"] == "ignored", since=mark)
    assert listo.story(one)["status"] == "delivered"
    assert len(listo.sns.messages) == texts


@pytest.mark.req("S2-73")
@pytest.mark.parametrize("change", ["no signature", "wrong token", "changed field", "two signatures", "another path"])
def test_a_forged_callback_changes_nothing(listo: Listo, change: str) -> None:
    one, sid = vendors.texted(listo)
    fields = {"MessageSid": sid, "MessageStatus": "failed"}
    token = "another-token" if change == "wrong token" else twilio_stub.TOKEN
    path = "/elsewhere" if change == "another path" else vendors.TWILIO
    headers, body = twilio_stub.signed(f"{listo.address}{path}", fields, token)
    if change == "no signature":
        del headers["x-twilio-signature"]
    if change == "changed field":
        body = body.replace(b"failed", b"undelivered")
    if change == "two signatures":
        headers["X-Twilio-signature"] = "Zm9yZ2Vk"
    reply = vendors.post(listo, vendors.TWILIO, body, headers)
    assert reply.status == 401
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.body["error"]["code"] == "CALLBACK_REFUSED"
    assert reply.body["error"]["details"] == []
    assert "signature" not in reply.body["detail"]
    assert vendors.receipts_of(listo, sid) == []
    assert listo.story(one)["attemptCount"] == 1


@pytest.mark.req("S2-75")
def test_json_with_a_signature_is_taken(listo: Listo) -> None:
    for signed_body in (True, False):
        one, sid = vendors.texted(listo)
        fields = {"MessageSid": sid, "MessageStatus": "failed", "ErrorCode": "30005"}
        url = f"{listo.address}{vendors.TWILIO}"
        if signed_body:
            url, headers, body = twilio_stub.signed_json(url, fields)
        else:
            headers, _ = twilio_stub.signed(url, fields)
            _, more, body = twilio_stub.signed_json(url, fields)
            headers["content-type"] = more["content-type"]
        path = url.removeprefix(listo.address)
        assert vendors.post(listo, path, body, headers).status == 200
        vendors.until_route(listo, one, provider="AWS_SNS")
        unsigned = {"content-type": "application/json"}
        assert vendors.post(listo, path, body, unsigned).status == 401


@pytest.mark.req("S2-79")
def test_an_unknown_message_is_thanked_for_and_logged(listo: Listo) -> None:
    sid = "SMffffffffffffffffffffffffffffffff"
    mark = listo.programs[-1].mark()
    reply = vendors.twilio(listo, sid, "failed", ErrorCode="30005")
    assert (reply.status, reply.body) == EMPTY
    line = listo.programs[-1].wait_for("receipt_taken", since=mark)
    assert (line["effect"], line["provider_message_id"]) == ("waiting", sid)


def test_what_cannot_be_understood_is_thanked_for_and_logged(listo: Listo) -> None:
    mark = listo.programs[-1].mark()
    reply = vendors.twilio(listo, "SM00", "evaporated")
    assert (reply.status, reply.body) == EMPTY
    line = listo.programs[-1].wait_for("callback_refused", since=mark)
    assert line["vendor"] == "twilio"
    assert "evaporated" in line["reason"]


def test_a_body_beyond_reason_is_refused(listo: Listo) -> None:
    reply = vendors.twilio(listo, "SM00", "sent", Padding="x" * 70_000)
    assert reply.status == 413
