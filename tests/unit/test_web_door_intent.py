"""From the JSON of a send request to an intent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.domain.errors import BadIntent
from carillon.domain.intents import Intent, Priority, fingerprint
from carillon.doors.http.wire import Context, SendBody, check_address, idempotency_key, reach_named, to_intent
from carillon.web import Problem, Reach
from carillon.web.request import convert


def context(reach: Reach | None = None, **changed: Any) -> Context:
    plain: dict[str, Any] = {
        "reach": reach or Reach(),
        "correlation_id": "corr-1",
        "idempotency_key": None,
        "trace_id": None,
        "accept_language": None,
    }
    return Context(**{**plain, **changed})


def intent(reach: Reach | None = None, **body: Any) -> Intent:
    sent = convert({"templateKey": "welcome", **body}, SendBody)
    return to_intent(sent, context(reach or reach_named(sent)))


@pytest.mark.req("S2-01", "S2-02")
def test_everything_a_body_can_say_arrives() -> None:
    found = intent(
        channel="email",
        priority="high",
        userId="ada",
        tenantId="acme",
        recipient="ada@example.org",
        serviceOrigin="orders",
        data={"name": "Ada"},
        isBulk=True,
        locale="de-DE",
        metadata={"campaign": 7},
        scheduledFor="2030-01-01T00:00:00+01:00",
        correlationId="theirs",
    )
    assert found.notification_type == "welcome"
    assert found.producer == "acme/orders"
    assert (found.origin, found.tenant_id) == ("orders", "acme")
    assert found.channels == ("email",)
    assert found.recipients[0].ref == "user:ada"
    assert found.recipients[0].addresses["email"] == "ada@example.org"
    assert (found.priority, found.bulk, found.locale) == (Priority.HIGH, True, "de-DE")
    assert (found.payload, found.metadata) == ({"name": "Ada"}, {"campaign": 7})
    assert found.scheduled_for_ms == 1_893_452_400_000
    assert found.request_id == "theirs"


def test_defaults() -> None:
    found = intent(userId="ada")
    assert (found.producer, found.origin, found.priority, found.bulk) == ("system", "system", Priority.NORMAL, False)
    assert (found.channels, found.payload, found.request_id) == ((), {}, "corr-1")


@pytest.mark.parametrize(
    ("channel", "address", "ref"),
    [
        ("email", "ada@example.org", "email:ada@example.org"),
        ("sms", "+4915112345678", "phone:+4915112345678"),
        ("push", "tok-1", "token:tok-1"),
        ("webhook", "https://example.org/hook?a=1", "url:https://example.org/hook?a=1"),
        ("inApp", "ada", "user:ada"),
    ],
)
def test_a_recipient_without_a_user_is_named_by_its_address(channel: str, address: str, ref: str) -> None:
    recipient = intent(channel=channel, recipient=address).recipients[0]
    assert recipient.ref == ref
    assert recipient.addresses == {channel: address}


@pytest.mark.parametrize(
    ("address", "channels"),
    [
        ("ada@example.org", {"email"}),
        ("+4915112345678", {"sms"}),
        ("http://example.org", {"webhook"}),
        ("some-token", {"push", "inApp"}),
    ],
)
@pytest.mark.req("S2-03")
def test_without_a_channel_the_address_says_what_it_can_be(address: str, channels: set[str]) -> None:
    assert set(intent(recipient=address).recipients[0].addresses) == channels


@pytest.mark.req("S2-04")
def test_nobody_is_refused() -> None:
    with pytest.raises(BadIntent) as caught:
        intent(channel="email")
    assert caught.value.code == "RECIPIENT_UNRESOLVED"


@pytest.mark.req("S2-04", "S2-15")
def test_a_token_says_who_and_for_whom() -> None:
    found = intent(Reach(tenant_id="acme", user_id="ada"), channel="inApp")
    assert (found.producer, found.tenant_id, found.recipients[0].ref) == ("acme/system", "acme", "user:ada")


BAD_ADDRESSES = {
    "sms": ["4915112345678", "+0123", "+", "+1234567890123456", "+49 151", "+49151x", "+4\u0669"],
    "email": [
        "ada",
        "@example.org",
        "ada@",
        "ada@example",
        "a da@example.org",
        "ada@exa_mple.org",
        "ada@@example.org",
        ".ada@example.org",
        "ada..b@example.org",
        "ada@-example.org",
        "ada@example.org.",
        "a" * 65 + "@example.org",
        "ada@" + "e" * 64 + ".org",
        "ada\r\nBcc:x@example.org",
        '"ada"@example.org',
        "Ada <ada@example.org>",
    ],
    "webhook": [
        "example.org",
        "ftp://example.org",
        "javascript:alert(1)",
        "http://",
        "https://user:pw@example.org",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://[::1",
        "http://ex\u00e4mple.org/",
    ],
    "push": ["tok\u00e9n"],
    "inApp": ["x" * 256],
}


@pytest.mark.req("S2-05")
@pytest.mark.parametrize(
    ("channel", "address"), [(channel, bad) for channel, all_bad in BAD_ADDRESSES.items() for bad in all_bad]
)
def test_an_address_no_channel_could_use(channel: str, address: str) -> None:
    with pytest.raises(BadIntent) as caught:
        check_address(channel, address)
    assert (caught.value.code, caught.value.field) == ("VALIDATION_ERROR", "recipient")


@given(st.sampled_from(sorted(BAD_ADDRESSES)), st.text(min_size=1, max_size=80))
def test_any_address_is_taken_or_refused(channel: str, address: str) -> None:
    try:
        check_address(channel, address)
    except BadIntent as error:
        refused = error.code
    else:
        refused = "VALIDATION_ERROR"
    assert refused == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"templateKey": ""}, "templateKey"),
        ({"templateKey": "Welcome"}, "templateKey"),
        ({"templateKey": "a" * 201}, "templateKey"),
        ({"templateKey": "welcome\n"}, "templateKey"),
        ({"channel": "fax"}, "channel"),
        ({"priority": "urgent"}, "priority"),
        ({"synchronous": "yes"}, "synchronous"),
        ({"serviceOrigin": "Orders/x"}, "serviceOrigin"),
        ({"tenantId": "a/b"}, "tenantId"),
        ({"userId": "a\u0000b"}, "userId"),
        ({"userId": ""}, "userId"),
        ({"data": []}, "data"),
        ({"metadata": "x"}, "metadata"),
        ({"locale": "english please"}, "locale"),
        ({"scheduledFor": "tomorrow"}, "scheduledFor"),
        ({"correlationId": "a b"}, "correlationId"),
        ({"status": "sent"}, "status"),
    ],
)
@pytest.mark.req("S2-11")
def test_wrong_fields(body: dict[str, Any], field: str) -> None:
    with pytest.raises(Problem) as caught:
        convert({"templateKey": "welcome", "userId": "ada", **body}, SendBody)
    assert caught.value.details[0].field == field


def test_data_and_variables_are_one_thing() -> None:
    assert intent(userId="ada", variables={"a": 1}).payload == {"a": 1}
    with pytest.raises(BadIntent):
        intent(userId="ada", variables={}, data={})


def test_a_schedule_without_an_offset_needs_a_clock() -> None:
    with pytest.raises(BadIntent, match="scheduledFor needs an offset"):
        intent(userId="ada", scheduledFor="2030-01-01T00:00:00")
    assert intent(userId="ada", scheduledFor="2030-01-01T00:00:00", timeZone="recipient").scheduled_for_ms is None


def test_a_date_before_time_began_is_refused() -> None:
    with pytest.raises(BadIntent):
        intent(userId="ada", scheduledFor="0001-01-01T00:00:00+14:00")


def same(**first: Any) -> Any:
    return fingerprint(intent(**first).content)


@pytest.mark.req("S2-13")
def test_what_makes_two_requests_the_same() -> None:
    plain = same(userId="ada", data={"a": 1, "b": 2})
    assert same(data={"b": 2, "a": 1}, userId="ada") == plain
    assert same(userId="ada", variables={"a": 1, "b": 2}) == plain
    assert same(userId="ada", data={"a": 1, "b": 2}, priority="normal", isBulk=False, channel=None) == plain
    assert same(userId="ada", data={"a": 1, "b": 2}, correlationId="other") == plain
    assert same(userId="ada", data={"a": 1, "b": 3}) != plain
    assert same(userId="bob", data={"a": 1, "b": 2}) != plain
    assert same(userId="ada", data={"a": 1, "b": 2}, priority="high") != plain


@pytest.mark.parametrize(
    ("standard", "earlier", "key"),
    [
        (None, None, None),
        ("abc", None, "abc"),
        ('"abc"', None, "abc"),
        (None, "abc", "abc"),
        ('"abc"', "abc", "abc"),
        (r'"a\"b\\c"', None, r'a"b\c'),
        ("  abc ", None, "abc"),
        ("a" * 255, None, "a" * 255),
    ],
)
@pytest.mark.req("S2-13")
def test_keys_are_read_from_either_header(standard: str | None, earlier: str | None, key: str | None) -> None:
    assert idempotency_key(standard, earlier) == key


@pytest.mark.parametrize(
    "bad", ["", '""', "a b", '"a b"', "a" * 256, "a\x00b", "a\r\nb", "\u00fc", '"open', '"a"b"', '"a\\b"', '"a";p=1']
)
def test_a_hostile_key_is_refused(bad: str) -> None:
    with pytest.raises(BadIntent):
        idempotency_key(bad, None)


def test_two_different_keys_are_refused() -> None:
    with pytest.raises(BadIntent):
        idempotency_key("a", "b")
