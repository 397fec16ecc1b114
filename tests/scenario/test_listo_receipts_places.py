"""The listo blueprint's callbacks: their URLs, callbacks that arrive too early, and an absent ledger."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import listo_callbacks as vendors
from tests.support import twilio_stub
from tests.support.listo_stand import SECRET, Listo, stand_fixture, token
from tests.support.servers import Postgres
from tests.support.vendor import Entry, Reply
from tests.support.waiting import wait_until

PUBLIC = "https://notify.example/carillon"

listo = stand_fixture("[receipts]\nlook_again_seconds = 0.1\n", start=False)


def called_back(listo: Listo) -> str:
    """The query of the callback that the newest message asks for."""
    wait_until(lambda: bool(listo.twilio.messages), timeout=40, what="a message at Twilio")
    url = list(listo.twilio.messages.values())[-1]["StatusCallback"]
    assert url.startswith(f"{PUBLIC}{vendors.TWILIO}?")
    return f"?{url.partition('?')[2]}"


@pytest.mark.req("S2-74")
def test_the_public_address_is_what_was_signed(listo: Listo) -> None:
    listo.start(PUBLIC_BASE_URL=PUBLIC)
    one, sid = vendors.texted(listo)
    query = called_back(listo)
    assert vendors.twilio(listo, sid, "delivered", query=query).status == 401
    assert vendors.twilio(listo, sid, "delivered", query=query, base=PUBLIC).status == 200
    assert vendors.route_of(listo, one)["receipt"] == "delivered"


@pytest.mark.req("S2-74")
def test_a_proxy_is_believed_only_where_it_is_trusted(listo: Listo) -> None:
    proxy = {"x-forwarded-proto": "https", "x-forwarded-host": "outside.example, inside.example"}
    for trusted, status in (("false", 401), ("true", 200)):
        listo.start(CARILLON_RECEIPTS__TRUST_FORWARDED=trusted)
        _, sid = vendors.texted(listo)
        headers, body = twilio_stub.signed(
            f"https://outside.example{vendors.TWILIO}", {"MessageSid": sid, "MessageStatus": "delivered"}
        )
        assert vendors.post(listo, vendors.TWILIO, body, {**headers, **proxy}).status == status
        with_port = {**headers, **proxy, "x-forwarded-port": "443"}
        assert vendors.post(listo, vendors.TWILIO, body, with_port).status == status


@pytest.mark.req("S2-80", "S2-79")
@pytest.mark.parametrize("public", [PUBLIC, ""])
def test_a_vendor_faster_than_our_own_settlement(listo: Listo, public: str) -> None:
    """Twilio's failure comes while its answer to the send is still on its way."""
    gate = threading.Event()

    def held(entry: Entry) -> Reply:
        taken = listo.twilio._take(entry)  # noqa: SLF001 - the stub's own answer, only later
        return Reply(taken.status, taken.headers, taken.body, gate=gate)

    listo.twilio.answer(held)
    program = listo.start(PUBLIC_BASE_URL=public)
    one = listo.sent("order_confirmed", "sms", recipient=vendors.phone())
    listo.twilio.wait_for(1)
    (sid,) = listo.twilio.messages
    query = called_back(listo) if public else ""
    assert vendors.twilio(listo, sid, "failed", query=query, base=public or None, ErrorCode="30005").status == 200
    assert program.wait_for("receipt_taken")["effect"] == "waiting"
    gate.set()
    program.wait_for("receipt_taken", lambda line: line["effect"] == "failed_over")
    vendors.until_route(listo, one, provider="AWS_SNS", status="published")
    assert len(listo.sns.messages) == 1


@pytest.mark.req("S2-77")
def test_what_was_sent_while_the_caller_waited_fails_over_by_the_queue(listo: Listo) -> None:
    listo.start()
    reply = listo.send("login_otp", "sms", recipient=vendors.phone(), synchronous=True, data={"code": "123456"})
    assert reply.status == 200, reply
    one = reply.body["notificationId"]
    assert vendors.twilio(listo, reply.body["providerMessageId"], "failed", ErrorCode="30005").status == 200
    vendors.until_route(listo, one, provider="AWS_SNS", status="published")


@pytest.mark.req("S2-31", "S2-76", "S2-114")
def test_strictly_it_is_sent_until_a_vendor_says_more(listo: Listo) -> None:
    listo.start(CARILLON_STRICT_RECEIPTS="true")
    one = listo.sent("order_confirmed", "sms", recipient=vendors.phone())
    story = listo.until(one, "sent")
    assert (story["deliveredAt"], story["routes"][0]["deliveredAt"]) == (None, None)
    sid = story["providerMessageIds"][0]
    for status in ("queued", "sent"):
        vendors.twilio(listo, sid, status)
        assert listo.story(one)["status"] == status
    found = listo.client.get("/api/v1/notifications?status=sent").body["items"]
    assert [item["id"] for item in found] == [one]
    assert listo.client.get("/api/v1/notifications?status=delivered").body["items"] == []
    vendors.twilio(listo, sid, "delivered")
    story = listo.story(one)
    assert story["status"] == "delivered"
    assert story["deliveredAt"] == story["routes"][0]["deliveredAt"] > story["sentAt"]
    found = listo.client.get("/api/v1/notifications?status=delivered").body["items"]
    assert [item["id"] for item in found] == [one]


@pytest.mark.req("S2-89")
def test_engagement_and_receipts_are_counted(listo: Listo) -> None:
    program = listo.start(CARILLON_METRICS__STDOUT="true", OTEL_METRIC_EXPORT_INTERVAL="100")
    _, message = vendors.mailed(listo)
    vendors.sendgrid(listo, vendors.event("open", message), vendors.event("open", message))
    vendors.sendgrid(listo, vendors.event("click", message))

    def text(line: dict[str, object]) -> str:
        return json.dumps(line)

    program.wait_for("metrics", lambda line: "carillon.engagement" in text(line) and "clicked" in text(line))
    program.wait_for("metrics", lambda line: "carillon.receipts" in text(line) and "noted" in text(line))


@pytest.mark.req("S2-73")
def test_callbacks_need_no_token_and_suppressions_an_administrators(listo: Listo) -> None:
    listo.start(JWT_SECRET_KEY=SECRET)
    admin, own = token("root", role="admin"), token("op", role="admin", tenant="t1")
    sent = listo.send("order_confirmed", "sms", recipient=vendors.phone(), tenantId="t1", headers=token(tenant="t1"))
    one = sent.body["notificationId"]
    sid = listo.until(one, "delivered", headers=admin)["providerMessageIds"][0]
    assert vendors.twilio(listo, sid, "delivered").status == 200
    assert vendors.route_of(listo, one)["receipt"] == "delivered"
    path = "/api/v1/suppressions"
    assert listo.client.get(path).status == 401
    assert listo.client.get(path, token()).status == 403
    assert listo.client.get(path, admin).status == 200
    body = {"channel": "sms", "address": "+15550001", "reason": "x"}
    assert listo.client.call("POST", path, {**body, "tenantId": "t2"}, own).status == 403
    assert listo.client.call("POST", path, body, own).body["tenantId"] == "t1"
    assert listo.client.call("POST", path, {**body, "tenantId": "t2"}, admin).body["tenantId"] == "t2"
    assert listo.client.call("POST", path, body, admin).body["tenantId"] is None
    assert [item["tenantId"] for item in listo.client.get(path, own).body["items"]] == ["t1"]
    assert len(listo.client.get(path, admin).body["items"]) == 3
    removing = f"{path}?channel=sms&address=%2B15550001"
    assert listo.client.call("DELETE", f"{removing}&tenantId=t2", headers=own).status == 403
    assert listo.client.call("DELETE", removing, headers=own).body == {"removed": 1}
    assert listo.client.call("DELETE", removing, headers=own).status == 404
    assert len(listo.client.get(path, admin).body["items"]) == 2


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.mark.req("S2-81")
def test_nothing_is_thanked_for_that_could_not_be_written(own_postgres: Postgres, tmp_path: Path) -> None:
    with Listo(tmp_path, own_postgres.database()) as listo:
        listo.start()
        one, sid = vendors.texted(listo)
        own_postgres.stop()
        reply = vendors.twilio(listo, sid, "failed", ErrorCode="30005")
        assert reply.status in {500, 503}
        own_postgres.start()
        wait_until(
            lambda: vendors.twilio(listo, sid, "failed", ErrorCode="30005").status == 200,
            timeout=60,
            what="Twilio's repetition to be taken",
        )
        vendors.until_route(listo, one, provider="AWS_SNS", status="published")
        assert len(listo.sns.messages) == 1
