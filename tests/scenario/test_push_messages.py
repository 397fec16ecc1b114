"""What the push worker reads, fetches and renders, from outside."""

import json
from typing import Any

import pytest

from tests.support.fcm_stub import legacy
from tests.support.push_stand import SEED_TEMPLATE, Push, message, shared_fixtures
from tests.support.raw_texts import RawText
from tests.support.vendor import Reply

shared_push, push = shared_fixtures()

REQUIRED = ["trace_id", "idempotency_key", "user_id", "notification_type", "recipient", "template_code"]


def delivered(push: Push, sent: dict[str, Any]) -> Any:
    """What FCM got for one message."""
    push.publish(sent)
    push.until_mark(sent, "sent")
    (post,) = push.posts(sent["trace_id"])
    return json.loads(post["body"])


def refused(push: Push, sent: Any) -> Any:
    """The dead letter of a message for which nobody was called."""
    gets, posts = len(push.template_service.gets), len(push.posts())
    push.publish(sent)
    (body,) = push.failed()
    assert (len(push.template_service.gets), len(push.posts())) == (gets, posts)
    push.until(lambda: push.broker.ready() == 0, what="push.queue empty")
    return body


@pytest.mark.req("S0-07")
def test_optional_fields_have_defaults_and_unknown_ones_are_tolerated(push: Push) -> None:
    push.template_service.templates["plain"] = {**SEED_TEMPLATE, "content": {"title": "Hello", "body": "There"}}
    sent = message(template_code="plain", variables=None, language=None, metadata=None, campaign={"deep": [1, None]})
    assert delivered(push, sent)["notification"] == {"title": "Hello", "body": "There"}
    assert push.template_service.entries[-1]["headers"]["accept-language"] == "en"
    assert push.until_audited(sent, "sent")["metadata"] == {}


@pytest.mark.req("S0-07", "S0-08")
@pytest.mark.parametrize("field", REQUIRED)
@pytest.mark.parametrize("value", [None, "", 7])
def test_a_required_field_that_is_not_there_ends_in_the_failed_queue(push: Push, field: str, value: object) -> None:
    sent = message(**{field: value}, extra="kept")
    body = refused(push, sent)
    assert body["original_message"] == sent
    assert body["failure_reason"].startswith("invalid message: ")
    assert field in body["failure_reason"]


@pytest.mark.req("S0-08")
@pytest.mark.parametrize(
    ("sent", "original"),
    [
        (b"not-json", "not-json"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
        (b"[1, 2]", [1, 2]),
        (b'"text"', "text"),
        (b"null", None),
        (b"{}", {}),
    ],
)
def test_an_invalid_message_goes_to_the_failed_queue_unchanged(push: Push, sent: bytes, original: object) -> None:
    body = refused(push, sent)
    assert body["original_message"] == original
    assert body["failure_reason"].startswith("invalid message:")


@pytest.mark.req("S0-08")
def test_properties_that_are_no_text_stop_nobody(push: Push) -> None:
    """A broker passes on ids and names that are no UTF-8; a client that gives up reads nothing more."""
    strange = [message() for _ in range(3)]
    unreadable: list[dict[str, Any]] = [
        {"message_id": RawText(b"\xff")},
        {"headers": {RawText(b"\xff"): "a"}},
        {"content_type": RawText(b"\xff")},
    ]
    for sent, properties in zip(strange, unreadable, strict=True):
        push.broker.publish_with(sent, **properties)
    good = message()
    push.publish(good)
    for sent in (*strange, good):
        push.until_mark(sent, "sent")


@pytest.mark.req("S0-08")
@pytest.mark.parametrize("changes", [{"variables": []}, {"metadata": "x"}, {"language": "en\r\nX: y"}])
def test_fields_of_the_wrong_kind_are_invalid(push: Push, changes: dict[str, Any]) -> None:
    body = refused(push, message(**changes))
    assert body["failure_reason"].startswith(f"invalid message: {next(iter(changes))}")


@pytest.mark.req("S0-08")
@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata": {"a": "\\u0000"}, %b',
        b'{"metadata": {"a": "\\ud800"}, %b',
        b'{"metadata": {"a": NaN}, %b',
        b'{"trace_id": "twice", %b',
        b'{"variables": ' + b"[" * 40 + b"]" * 40 + b", %b",
    ],
    ids=["nul", "surrogate", "nan", "key twice", "too deep"],
)
def test_what_no_store_can_hold_or_two_readers_would_read_differently_is_invalid(push: Push, body: bytes) -> None:
    fields = message(metadata=None, variables=None)
    sent = body.replace(b"%b", json.dumps(fields).encode()[1:])
    assert refused(push, sent)["failure_reason"].startswith("invalid message:")
    another = message()
    push.publish(another)
    push.until_mark(another, "sent")


@pytest.mark.req("S0-09")
def test_another_notification_type_is_invalid_here(push: Push) -> None:
    assert "email" in refused(push, message(notification_type="email"))["failure_reason"]


@pytest.mark.req("S0-10", "S0-22")
def test_code_and_language_reach_the_template_service(push: Push) -> None:
    delivered(push, message(template_code="a/b c?d", language="es-MX"))
    asked = push.template_service.entries[-1]
    assert asked["path"] == "/api/v1/templates/a%2Fb%20c%3Fd"
    assert asked["headers"]["accept-language"] == "es-MX"


@pytest.mark.req("S0-22")
def test_without_a_template_service_nothing_starts(push: Push) -> None:
    program = push.launch(TEMPLATE_SERVICE_URL="")
    assert program.wait() == 2
    assert "TEMPLATE_SERVICE_URL" in program.tail()
    push.programs.remove(program)


@pytest.mark.req("S0-25")
@pytest.mark.parametrize("status", [400, 404, 410])
def test_a_template_that_is_not_there_is_asked_for_once(push: Push, status: int) -> None:
    push.template_service.answer(Reply(status, body={"error": "no"}))
    before, sent = len(push.template_service.gets), message(template_code="gone_template")
    push.publish(sent)
    assert "gone_template" in push.dead(sent)["failure_reason"]
    assert len(push.template_service.gets) == before + 1
    assert push.pushed(sent) == 0
    push.until_mark(sent, "failed")


@pytest.mark.req("S0-27")
@pytest.mark.parametrize(
    "template",
    [
        {**SEED_TEMPLATE, "type": "email"},
        {**SEED_TEMPLATE, "content": {"title": "only a title"}},
        {**SEED_TEMPLATE, "content": {"body": "only a body"}},
        {**SEED_TEMPLATE, "content": {"title": "", "body": "x"}},
        {"code": "x", "type": "push"},
        {**SEED_TEMPLATE, "content": {"title": "{% if x %}", "body": "logic"}},
    ],
)
def test_what_is_no_push_template_is_a_permanent_failure(push: Push, template: dict[str, Any]) -> None:
    push.template_service.templates["strange"] = template
    before, sent = len(push.template_service.gets), message(template_code="strange")
    push.publish(sent)
    assert push.dead(sent)["failure_reason"]
    assert (push.pushed(sent), len(push.template_service.gets)) == (0, before + 1)


@pytest.mark.req("S0-28")
def test_every_message_asks_for_its_template(push: Push) -> None:
    before = len(push.template_service.gets)
    for _ in range(2):
        delivered(push, message())
    assert len(push.template_service.gets) == before + 2


@pytest.mark.req("S0-29", "S0-30")
def test_every_placeholder_in_title_and_body_is_filled(push: Push) -> None:
    content = {"title": "{{name}} {{ name }}", "body": "Welcome {{name}}! Visit: {{link}} {{  link}}"}
    push.template_service.templates["twice"] = {**SEED_TEMPLATE, "content": content}
    shown = delivered(push, message(template_code="twice"))["notification"]
    link = "https://example.com/welcome"
    assert shown == {"title": "John Doe John Doe", "body": f"Welcome John Doe! Visit: {link} {link}"}


@pytest.mark.req("S0-31")
def test_a_missing_variable_is_never_shown_to_anybody(push: Push) -> None:
    sent = message(variables={"name": "Ada"})
    push.publish(sent)
    assert push.dead(sent)["failure_reason"] == "missing template variables: link"
    assert push.pushed(sent) == 0


@pytest.mark.req("S0-32")
def test_values_become_text_and_are_not_rendered_again(push: Push) -> None:
    content = {"title": "{{name}}", "body": "{{count}} {{yes}}"}
    push.template_service.templates["values"] = {**SEED_TEMPLATE, "content": content}
    variables = {"name": "{{link}}", "count": 5, "yes": True, "link": "https://example.com"}
    shown = delivered(push, message(template_code="values", variables=variables))["notification"]
    assert shown == {"title": "{{link}}", "body": "5 true"}
    sent = message(template_code="values", variables={**variables, "count": None})
    push.publish(sent)
    assert push.dead(sent)["failure_reason"] == "missing template variables: count"


@pytest.mark.req("S0-35")
def test_data_holds_the_trace_and_the_chosen_variables_that_are_there(push: Push) -> None:
    push.template_service.templates["plain"] = {**SEED_TEMPLATE, "content": {"title": "Hello", "body": "There"}}
    sent = message(template_code="plain", variables={"name": "Ada"})
    assert delivered(push, sent)["data"] == {"trace_id": sent["trace_id"]}
    sent = message(template_code="plain", variables={"link": 7})
    assert delivered(push, sent)["data"] == {"trace_id": sent["trace_id"], "link": "7"}


@pytest.mark.req("S0-38")
@pytest.mark.parametrize("word", ["NotRegistered", "InvalidRegistration", "MismatchSenderId"])
def test_a_200_that_tells_of_a_failure_is_one(push: Push, word: str) -> None:
    push.fcm.answer(legacy(error=word))
    sent = message()
    push.publish(sent)
    assert push.dead(sent)["failure_reason"] == f"FCM rejected: {word}"
    assert push.pushed(sent) == 1


@pytest.mark.req("S0-38")
@pytest.mark.parametrize("word", ["Unavailable", "InternalServerError"])
def test_a_200_that_asks_for_patience_is_tried_again(push: Push, word: str) -> None:
    push.fcm.answer(legacy(error=word))
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")
    assert push.pushed(sent) == 2


@pytest.mark.req("S0-38")
@pytest.mark.parametrize("body", [b"", b"{}", b"ok", b'{"success": 1}'])
def test_a_200_without_a_word_is_a_success(push: Push, body: bytes) -> None:
    push.fcm.answer(Reply(200, body=body))
    sent = message()
    push.publish(sent)
    push.until_mark(sent, "sent")
    assert push.pushed(sent) == 1
