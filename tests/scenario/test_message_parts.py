"""Numbers, pushes and the inbox from outside: what the operator allows, what a request adds, and what arrives."""

import json
from typing import Any

import pytest

from tests.support.client import Reply
from tests.support.listo_stand import PHONE, Listo, shared_fixture
from tests.support.listo_templates import PATH

SETTINGS = """
[sms]
countries = ["US"]
check = "possible"
[tenant.acme]
sms_countries = ["DE", "AT"]
sender = "Acme <hello@acme.example>"
[message.limited]
max_segments = 1
[message."plain*"]
transliterate = true
[message.offer]
sender = "Offers <offers@carillon.example>"
reply_to = "shop@carillon.example"
[message.offer.push]
image = "https://example.org/{{number}}.png"
channel_id = "offers"
data = { kind = "offer" }
[message.offer.in_app]
icon = "/offer.png"
[message.thread.push]
sound = "{{who}}"
action_url = "{{link}}"
collapse_key = "{{thread}}"
[message.thread.in_app]
url = "{{link}}"
title = "{{who}}"
"""
listo = shared_fixture(SETTINGS)
GERMAN = "+4915112345678"


def make(listo: Listo, key: str, channel: str = "sms", text: str = "Hi {{name}}", **fields: Any) -> None:
    body = {"templateKey": key, "channel": channel, "bodyTemplate": text, **fields}
    assert listo.client.call("POST", PATH, body).status == 201


def explained(listo: Listo, **body: Any) -> Any:
    return listo.client.call("POST", "/api/v1/notifications/explain", body).body


def refused(reply: Reply) -> tuple[int, str, str]:
    error = reply.body["error"]
    return reply.status, error["code"], error["details"][0]["field"]


@pytest.mark.req("P-103")
def test_each_tenant_sends_to_its_own_countries(listo: Listo) -> None:
    assert refused(listo.send("order_confirmed", "sms", recipient=GERMAN)) == (422, "COUNTRY_NOT_ALLOWED", "recipient")
    assert listo.send("order_confirmed", "sms", recipient=PHONE).status == 202
    assert listo.send("order_confirmed", "sms", recipient=GERMAN, tenantId="acme").status == 202
    other = listo.send("order_confirmed", "sms", recipient=PHONE, tenantId="acme")
    assert refused(other) == (422, "COUNTRY_NOT_ALLOWED", "recipient")
    assert "US is not among the countries" in other.body["error"]["message"]
    assert listo.send("order_confirmed", "sms", recipient=GERMAN, tenantId="globex").status == 422
    batch = listo.client.call(
        "POST",
        "/api/v1/notifications/batch",
        {"notifications": [{"templateKey": "order_confirmed", "channel": "sms", "recipient": GERMAN}]},
    )
    assert batch.body["results"][0]["error"]["code"] == "COUNTRY_NOT_ALLOWED"


@pytest.mark.req("P-103")
def test_a_number_that_cannot_exist_is_refused_and_explain_names_the_country(listo: Listo) -> None:
    assert refused(listo.send("order_confirmed", "sms", recipient="+1415555")) == (400, "VALIDATION_ERROR", "recipient")
    said = explained(listo, templateKey="order_confirmed", channel="sms", recipient=PHONE)
    (step,) = [one for one in said["steps"] if one["step"] == "recipient"]
    assert (step["detail"]["country"], step["detail"]["written"]) == ("US", "+1 415-555-0100")
    abroad = explained(listo, templateKey="order_confirmed", channel="sms", recipient=GERMAN)
    (stop,) = [one for one in abroad["steps"] if one["verdict"] == "stop"]
    assert (abroad["code"], stop["step"]) == ("COUNTRY_NOT_ALLOWED", "recipient")


@pytest.mark.req("P-104")
def test_a_text_message_with_too_many_parts_is_refused(listo: Listo) -> None:
    make(listo, "limited")
    assert listo.send("limited", "sms", data={"name": "x" * 157}).status == 202
    assert refused(listo.send("limited", "sms", data={"name": "x" * 158})) == (400, "VALIDATION_ERROR", "data")
    # One letter beyond GSM-7, and a part holds 70.
    assert refused(listo.send("limited", "sms", data={"name": "ж" * 68}))[0] == 400


@pytest.mark.req("P-102")
def test_a_text_message_is_spelled_in_the_cheaper_alphabet(listo: Listo) -> None:
    make(listo, "plain.note", text="“{{name}}” \u2013 yes")
    story = listo.until(listo.sent("plain.note", "sms", data={"name": "Łódź"}), "delivered")
    message = story["routes"][0]["message"]
    assert (message["text"], message["segments"]["encoding"]) == ('"Lodz" - yes', "GSM-7")
    preview = listo.client.call("POST", f"{PATH}/render", {"templateKey": "plain.note", "data": {"name": "Łódź"}}).body
    assert preview["segments"] == message["segments"]
    make(listo, "fancy", text="“{{name}}” \u2013 yes")
    story = listo.until(listo.sent("fancy", "sms", data={"name": "Łódź"}), "delivered")
    assert story["routes"][0]["message"]["segments"]["encoding"] == "UCS-2"


@pytest.mark.req("P-120")
def test_the_sender_is_the_templates_else_the_tenants_else_the_providers(listo: Listo) -> None:
    make(listo, "offer", "email", subjectTemplate="S", text="Offer {{number}}")
    sends: dict[str, tuple[str, dict[str, Any]]] = {
        "offers@carillon.example": ("offer", {"data": {"number": "1"}}),
        "hello@acme.example": ("order_confirmed", {"tenantId": "acme"}),
        "bells@carillon.example": ("order_confirmed", {"tenantId": "globex"}),
    }
    for number, (sender, (key, fields)) in enumerate(sends.items()):
        address = f"sender-{number}@example.com"
        listo.until(listo.sent(key, "email", recipient=address, **fields), "delivered")
        (call,) = listo.calls("SendGrid", address)
        mail = json.loads(call["body"])
        assert mail["from"]["email"] == sender
        assert mail.get("reply_to") == ({"email": "shop@carillon.example"} if key == "offer" else None)


@pytest.mark.req("P-121")
def test_a_push_carries_what_its_template_and_its_request_say(listo: Listo) -> None:
    make(listo, "offer", "push", subjectTemplate="Offer", text="Number {{number}}")
    given = {"actionUrl": "https://example.org/o/7", "badge": 2, "data": {"id": "7"}, "title": "For you"}
    one = listo.sent("offer", "push", data={"number": "7"}, push=given, collapseKey="offer-7")
    story = listo.until(one, "delivered")
    (call,) = listo.calls("FCM", "offer-7")
    message = json.loads(call["body"])["message"]
    shown = {"title": "For you", "body": "Number 7", "image": "https://example.org/7.png"}
    assert message["notification"] == shown
    assert message["data"].items() >= {"kind": "offer", "id": "7", "action_url": "https://example.org/o/7"}.items()
    assert message["android"]["notification"] == {"channel_id": "offers", "notification_count": 2}
    assert message["android"]["collapse_key"] == "offer-7"
    seen = story["routes"][0]["message"]["push"]
    assert (seen["actionUrl"], seen["badge"], seen["channelId"]) == ("https://example.org/o/7", 2, "offers")


@pytest.mark.req("P-122")
def test_the_inbox_gets_title_link_icon_and_actions(listo: Listo) -> None:
    make(listo, "offer", "inApp", subjectTemplate="Offer", text="Number {{number}}")
    actions = [{"label": "Take it", "url": "/offers/7"}]
    fields = {"data": {"number": "7"}, "inApp": {"url": "https://example.org/7", "actions": actions}}
    one = listo.sent("offer", "inApp", recipient="user-7", **fields)
    message = listo.until(one, "delivered")["routes"][0]["message"]
    assert (message["subject"], message["text"]) == ("Offer", "Number 7")
    assert message["inApp"] == {"url": "https://example.org/7", "icon": "/offer.png", "actions": actions}


@pytest.mark.req("P-121")
@pytest.mark.parametrize("engine", ["jinja", "simple"])
def test_a_template_of_a_push_writes_its_fields(listo: Listo, engine: str) -> None:
    key = f"shipped.{engine}"
    push = {
        "title": "On its way: {{number}}",
        "image": "https://example.org/{{number}}.png",
        "actionUrl": "https://example.org/o/{{number}}",
        "collapseKey": "order-{{number}}",
        "ttlSeconds": 600,
        "badge": "{{open}}",
        "sound": "bell",
        "channelId": "orders",
        "data": {"number": "{{number}}"},
    }
    make(listo, key, "push", "It comes {{day}}", engine=engine, push=push)
    data = {"number": f"7-{engine}", "open": 3, "day": "today"}
    preview = listo.client.call("POST", f"{PATH}/render", {"templateKey": key, "data": data}).body
    assert (preview["subject"], preview["text"]) == (f"On its way: 7-{engine}", "It comes today")
    assert (preview["push"]["badge"], preview["push"]["ttlSeconds"]) == (3, 600)
    said = explained(listo, templateKey=key, channel="push", recipient="device", data=data)
    (step,) = [one for one in said["steps"] if one["step"] == "render"]
    assert step["detail"]["push"] == preview["push"]
    # What the request says counts more than what the template says.
    one = listo.sent(key, "push", data=data, push={"sound": "gong", "data": {"more": "x"}})
    listo.until(one, "delivered")
    (call,) = listo.calls("FCM", f"order-7-{engine}")
    message = json.loads(call["body"])["message"]
    assert message["notification"]["image"] == f"https://example.org/7-{engine}.png"
    assert message["data"].items() >= {"number": f"7-{engine}", "more": "x"}.items()
    shown = message["android"]["notification"]
    assert (shown["channel_id"], shown["sound"], shown["notification_count"]) == ("orders", "gong", 3)
    assert message["android"]["ttl"] == "600s"
    missing = listo.send(key, "push", data={"number": "7", "day": "today"})
    assert (missing.status, missing.body["error"]["code"]) == (400, "TEMPLATE_RENDER_ERROR")
    assert "missing template variables: open" in missing.body["error"]["message"]


@pytest.mark.req("P-122")
def test_a_template_of_the_inbox_writes_link_icon_and_actions(listo: Listo) -> None:
    fields = {
        "url": "/orders/{{ number }}",
        "icon": "{% if urgent|default(false) %}/red.png{% endif %}",
        "actions": [
            {"label": "Track", "url": "/track/{{ number }}"},
            {"label": "Pay", "url": "{% if urgent|default(false) %}/pay/{{ number }}{% endif %}"},
        ],
    }
    make(listo, "inbox.order", "inApp", "Order {{ number }}", subjectTemplate="Order", inApp=fields)
    one = listo.sent("inbox.order", "inApp", recipient="user-8", data={"number": "8"})
    message = listo.until(one, "delivered")["routes"][0]["message"]
    assert message["inApp"] == {"url": "/orders/8", "actions": [{"label": "Track", "url": "/track/8"}]}
    urgent = {"templateKey": "inbox.order", "data": {"number": "8", "urgent": True}}
    preview = listo.client.call("POST", f"{PATH}/render", urgent).body
    assert (preview["inApp"]["icon"], len(preview["inApp"]["actions"])) == ("/red.png", 2)
    evil = listo.send("inbox.order", "inApp", recipient="user-8", data={"number": "8\u202e"})
    assert (evil.status, evil.body["error"]["details"][0]["field"]) == (400, "inApp.url")
    (stored,) = listo.client.call("GET", f"{PATH}?templateKey=inbox.order").body["items"]
    assert (stored["inApp"], stored["push"]) == (fields, None)
    # A next version keeps its fields; null takes them away.
    changed = listo.client.call("PUT", f"{PATH}/{stored['id']}", {"bodyTemplate": "Hi {{ number }}"}).body
    assert changed["inApp"] == fields
    assert listo.client.call("PUT", f"{PATH}/{stored['id']}", {"inApp": None}).body["inApp"] is None


@pytest.mark.req("P-121", "P-122")
@pytest.mark.parametrize(
    ("channel", "fields", "said"),
    [
        ("push", {"push": {"titel": "x"}}, "titel"),
        ("push", {"push": {"actionUrl": "javascript:x"}}, "push.actionUrl"),
        ("push", {"push": {"badge": "many"}}, "badge"),
        ("push", {"push": {"image": "{{ a"}}, "is not closed"),
        ("push", {"inApp": {"url": "/x"}}, "only a template of the channel inApp"),
        ("email", {"push": {"badge": 1}}, "only a template of the channel push"),
        ("inApp", {"inApp": {"actions": [{"label": "x", "url": "{% for %}"}]}}, "inApp.actions[0].url"),
    ],
)
def test_fields_that_no_message_could_have_are_refused_when_they_are_saved(
    listo: Listo, channel: str, fields: Any, said: str
) -> None:
    body = {"templateKey": "unfit.fields", "channel": channel, "bodyTemplate": "x", **fields}
    for path in (PATH, f"{PATH}/render"):
        if path != PATH:
            body.pop("templateKey")
        reply = listo.client.call("POST", path, body)
        assert (reply.status, reply.body["error"]["code"]) == (400, "VALIDATION_ERROR")
        assert said in json.dumps(reply.body)


@pytest.mark.req("P-121", "P-122")
@pytest.mark.parametrize(
    ("channel", "fields", "field"),
    [
        ("push", {"push": {"actionUrl": "javascript:alert(1)"}}, "push.actionUrl"),
        ("push", {"push": {"image": "data:image/svg+xml,x"}}, "push.image"),
        ("push", {"push": {"data": {"from": "x"}}}, "push.data"),
        ("push", {"push": {"data": {"x": "y" * 3001}}}, "push.data"),
        ("push", {"push": {"ttlSeconds": -1}}, "push.ttlSeconds"),
        ("push", {"push": {"titel": "x"}}, "push.titel"),
        ("inApp", {"inApp": {"url": "java\tscript:alert(1)"}}, "inApp.url"),
        ("inApp", {"inApp": {"url": "//evil.example"}}, "inApp.url"),
        ("inApp", {"inApp": {"url": "/\\evil.example"}}, "inApp.url"),
        ("inApp", {"inApp": {"actions": [{"label": "x", "url": " https://x.example"}]}}, "inApp.actions[0].url"),
        ("inApp", {"push": {"badge": 1}}, "push"),
        ("push", {"inApp": {"url": "/x"}}, "inApp"),
    ],
)
def test_what_no_device_should_show_is_refused_with_its_field(
    listo: Listo, channel: str, fields: Any, field: str
) -> None:
    reply = listo.send("order_confirmed", channel, recipient="someone", **fields)
    assert reply.status == 400, reply
    found = reply.body["error"]["details"][0]
    assert found["field"] == field or field in json.dumps(reply.body["error"])


@pytest.mark.req("P-1120")
@pytest.mark.parametrize("channel", ["push", "inApp"])
def test_the_operators_parts_are_filled_as_those_of_a_template(listo: Listo, channel: str) -> None:
    defaults = {"who": "Somebody", "thread": "all"}
    make(listo, "thread", channel, "New", subjectTemplate="Title", defaultVariables=defaults)
    person = {"recipient": "user-11"} if channel == "inApp" else {}
    pushed = channel == "push"

    def carried(**data: Any) -> tuple[str | None, str | None]:
        story = listo.until(listo.sent("thread", channel, data=data, **person), "delivered")
        message = story["routes"][0]["message"]
        parts = message[channel]
        return (parts.get("sound"), parts.get("actionUrl")) if pushed else (message["subject"], parts.get("url"))

    assert carried(link="https://example.org/7") == ("Somebody", "https://example.org/7")
    # A field that becomes empty is left out.
    assert carried(who="", link="") == (None if pushed else "Title", None)
    wrong = {"who": "x" * 2001, "link": "https://example.org"}
    for path in ("/api/v1/notifications/send", "/api/v1/notifications/explain", f"{PATH}/render"):
        recipient = {} if path.endswith("render") else {"recipient": "device" if pushed else "user-11"}
        body = {"templateKey": "thread", "channel": channel, "data": wrong, **recipient}
        reply = listo.client.call("POST", path, body)
        said = json.dumps(reply.body)
        assert reply.status == (200 if path.endswith("explain") else 400), reply
        assert "TEMPLATE_RENDER_ERROR" in said
        assert f"message.thread.{channel}" in said
