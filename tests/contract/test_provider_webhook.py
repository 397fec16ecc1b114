"""The webhook provider against an HTTP stub on loopback."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from carillon.domain.errors import ConfigurationError
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.ports import Provider
from carillon.providers import load
from carillon.providers.http import HttpClient, header_id
from carillon.providers.tools import Secret
from carillon.providers.webhook.signing import Check, verify_standard, verify_x_webhook
from tests.support.dispatches import LOOPBACK, SECRET, dispatch, tools
from tests.support.ports import free_port
from tests.support.vendor import Reply, Vendor

OLD = "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="
ED25519 = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
NOW = 1_700_000_100.9


def webhook(http: HttpClient, **options: Any) -> Provider:
    return load("hooks", "webhook", {"secrets": [SECRET], **LOOPBACK, **options}, tools(http, wall=NOW))


def call(endpoint: Vendor, **fields: Any) -> Any:
    return dispatch(address=f"{endpoint.url}/in?x=1", **fields)


async def test_what_arrives_is_what_was_signed(endpoint: Vendor, http: HttpClient) -> None:
    provider = webhook(http, secrets=[SECRET, OLD, ED25519], headers={"X-Tenant": "seven"})
    assert await provider.send(call(endpoint, payload={"a": [1, 2.5, None], "b": "ü"})) == Sent()
    [entry] = endpoint.entries
    headers, body = entry["headers"], entry["body"].encode()
    assert (entry["method"], entry["path"]) == ("POST", "/in?x=1")
    assert headers["content-type"] == "application/json"
    assert (headers["x-tenant"], headers["user-agent"]) == ("seven", "Carillon")
    assert headers["webhook-timestamp"] == "1700000100"
    assert [part.split(",")[0] for part in headers["webhook-signature"].split(" ")] == ["v1", "v1", "v1a"]
    for secret in (SECRET, OLD, ED25519):
        assert verify_standard([Secret(secret)], headers.items(), body, now=NOW) is Check.OK
    assert body.decode() == (
        '{"data":{"message":{"html":"<p>Your table is <b>ready</b>.</p>","subject":"Table 7",'
        '"text":"Your table is ready."},"notification_id":"0191f0a0-0000-7000-8000-000000000001",'
        '"payload":{"a":[1,2.5,null],"b":"ü"}},"timestamp":"2023-11-14T22:13:20.123Z","type":"table.ready"}'
    )


async def test_a_repeat_keeps_id_and_body_and_renews_the_timestamp(endpoint: Vendor, http: HttpClient) -> None:
    for wall in (NOW, NOW + 60):
        provider = load("hooks", "webhook", {"secrets": [SECRET], **LOOPBACK}, tools(http, wall=wall))
        await provider.send(call(endpoint, attempt=int(wall - NOW) + 1))
    first, second = endpoint.entries
    assert first["id"] == second["id"] == "0191f0a0-0000-7000-8000-000000000001/webhook:user-7"
    assert first["body"] == second["body"]
    assert first["headers"]["webhook-timestamp"] != second["headers"]["webhook-timestamp"]
    assert first["headers"]["webhook-signature"] != second["headers"]["webhook-signature"]


def test_an_id_never_has_a_dot_and_two_keys_never_one_id() -> None:
    keys = ["a/b", "a/b.c", "a/b-c", "a/ü", "a/b\r\nX: 1", "a/b c", "a/" + "x" * 500, "a/" + "x" * 501]
    ids = [header_id(key) for key in keys]
    assert len(set(ids)) == len(keys)
    assert all("." not in name and name.isascii() and name.isprintable() and " " not in name for name in ids)


@pytest.mark.req("S3-67", "S3-69", "S3-70")
async def test_the_older_scheme_signs_the_bare_payload(endpoint: Vendor, http: HttpClient) -> None:
    provider = webhook(http, scheme="x-webhook", secrets=["webhook-signing-secret"])
    await provider.send(call(endpoint, payload={"status": "success", "event_id": "payment_1"}))
    [entry] = endpoint.entries
    assert entry["body"] == '{"event_id":"payment_1","status":"success"}'
    assert entry["headers"]["x-webhook-event-id"] == "0191f0a0-0000-7000-8000-000000000001/webhook:user-7"
    assert entry["headers"]["user-agent"] == "Carillon"
    assert "webhook-signature" not in entry["headers"]
    checked = verify_x_webhook(
        [Secret("webhook-signing-secret")], entry["headers"].items(), entry["body"].encode(), now=NOW
    )
    assert checked is Check.OK


async def test_an_endpoint_may_have_its_own_secrets(endpoint: Vendor, http: HttpClient) -> None:
    provider = webhook(http, endpoints={f"{endpoint.url}/in?x=1": [OLD]})
    await provider.send(call(endpoint))
    await provider.send(dispatch(address=f"{endpoint.url}/other"))
    for entry, secret in zip(endpoint.entries, (OLD, SECRET), strict=True):
        assert verify_standard([Secret(secret)], entry["headers"].items(), entry["body"].encode(), now=NOW) is Check.OK


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (Reply(200), Sent()),
        (Reply(204, body=b""), Sent()),
        (Reply(410, body="gone"), Refused("HTTP 410 gone", "endpoint_gone", recipient_gone=True)),
        (Reply(429, {"Retry-After": "9"}, b""), Throttled("HTTP 429", 9.0)),
        (Reply(429, {"Retry-After": "Tue, 14 Nov 2023 22:16:00 GMT"}, b""), Throttled("HTTP 429", 59.1)),
        (Reply(429, {"Retry-After": "junk"}, b""), Throttled("HTTP 429", None)),
        (Reply(301, {"Location": "http://127.0.0.1:1/"}, b""), Refused("HTTP 301", "redirect")),
        (Reply(304, body=b""), Refused("HTTP 304", "redirect")),
        *(
            (Reply(status, body=b""), Unavailable(f"HTTP {status}", f"http_{status}"))
            for status in (400, 401, 403, 404)
        ),
        *(
            (Reply(status, body=b""), Unavailable(f"HTTP {status}", f"http_{status}"))
            for status in (405, 408, 409, 413)
        ),
        *(
            (Reply(status, body=b""), Unavailable(f"HTTP {status}", f"http_{status}"))
            for status in (422, 425, 500, 501)
        ),
        *(
            (Reply(status, {"Retry-After": "3"}, b""), Unavailable(f"HTTP {status}", f"http_{status}", 3.0))
            for status in (502, 503, 504)
        ),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Reply) else "",
)
async def test_answers(endpoint: Vendor, http: HttpClient, reply: Reply, outcome: Outcome) -> None:
    endpoint.answer(reply)
    found = await webhook(http).send(call(endpoint))
    if isinstance(found, Throttled) and found.retry_after is not None:
        found = msgspec.structs.replace(found, retry_after=round(found.retry_after, 3))
    assert found == outcome


@pytest.mark.parametrize("status", [301, 400, 404, 410, 500])
async def test_the_older_scheme_retries_everything_but_success(endpoint: Vendor, http: HttpClient, status: int) -> None:
    endpoint.answer(Reply(status, body=b""))
    found = await webhook(http, scheme="x-webhook", secrets=["s"]).send(call(endpoint))
    assert found == Unavailable(f"HTTP {status}", f"http_{status}")


async def test_silence_is_unknown_and_a_closed_door_unavailable(endpoint: Vendor, http: HttpClient) -> None:
    endpoint.answer(Reply(hang=True), Reply(reset=True))
    assert isinstance(await webhook(http).send(call(endpoint, timeout_seconds=2.0)), Unknown)
    assert isinstance(await webhook(http).send(call(endpoint)), Unknown)
    assert isinstance(await webhook(http).send(dispatch(address="http://127.0.0.1:9/")), Refused)
    closed = await webhook(http).send(dispatch(address=f"http://127.0.0.1:{free_port()}/"))
    assert isinstance(closed, Unavailable)
    assert closed.classification == "connect"


async def test_a_forbidden_address_is_refused_in_one_sentence(endpoint: Vendor, http: HttpClient) -> None:
    strict = load("hooks", "webhook", {"secrets": [SECRET]}, tools(http))
    for url in (endpoint.url, "https://10.0.0.1/", "https://localhost/", "ftp://a.example/", "nonsense"):
        assert await strict.send(dispatch(address=url)) == Refused("this address may not be called", "blocked_address")
    ours = load(
        "hooks",
        "webhook",
        {"secrets": [SECRET], **LOOPBACK},
        tools(http, own_addresses=(f"127.0.0.1:{endpoint.port}",)),
    )
    assert isinstance(await ours.send(call(endpoint)), Refused)
    assert not endpoint.entries


async def test_the_operators_own_url_needs_no_permission(endpoint: Vendor, http: HttpClient) -> None:
    provider = load("hooks", "webhook", {"secrets": [SECRET], "url": f"{endpoint.url}/fixed"}, tools(http))
    assert await provider.send(dispatch(address=None)) == Sent()
    assert endpoint.entries[0]["path"] == "/fixed"
    assert isinstance(await provider.send(dispatch(address=f"{endpoint.url}/fixed")), Refused)
    assert len(endpoint.entries) == 1
    assert await webhook(http).send(dispatch(address=None)) == Refused(
        "the route has no endpoint, or the endpoint no secret", "no_endpoint"
    )


async def test_one_slow_endpoint_holds_few_calls_and_no_other_endpoint(endpoint: Vendor, http: HttpClient) -> None:
    endpoint.default = lambda entry: Reply(hang="slow" in entry["path"])
    provider = webhook(http, concurrency_per_endpoint=2, slot_wait_seconds=0.05)
    slow = [
        asyncio.create_task(provider.send(dispatch(address=f"{endpoint.url}/slow", timeout_seconds=3.0)))
        for _ in range(6)
    ]
    await endpoint.until(2)
    assert await provider.send(dispatch(address=f"{endpoint.url}/good")) == Sent()
    outcomes = await asyncio.gather(*slow)
    assert [type(outcome) for outcome in outcomes].count(Unknown) == 2
    assert [type(outcome) for outcome in outcomes].count(Throttled) == 4
    assert len(endpoint.entries) == 3


@pytest.mark.parametrize(
    "headers",
    [
        *({name: "x"} for name in ("Host", "content-length", "Transfer-Encoding", "CONNECTION", "webhook-id")),
        *({name: "x"} for name in ("Webhook-Anything", "X-Webhook-Signature", "Proxy-Authorization", "Cookie")),
        *({"X-A": value} for value in ("a\r\nX-B: c", "a\nb", "a\x00", "a\u2028b", "\u00e9", "a\x0bb")),
        *({name: "x"} for name in ("", "a b", "a:b", "a\r\nb", "\u00e9", "a" * 200)),
    ],
    ids=ascii,
)
def test_headers_that_are_not_the_operators_to_set(http: HttpClient, headers: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match=r"^providers\.hooks: headers: "):
        webhook(http, headers=headers)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secrets": []}, "providers.hooks: secrets: at least one"),
        ({"secrets": [SECRET] * 11}, "providers.hooks.secrets: Expected `array` of length <= 10"),
        ({"secrets": ["whsec_c2hvcnQ="]}, "providers.hooks: a webhook secret is whsec_"),
        ({"secrets": [7]}, "providers.hooks.secrets[0]: Expected a non-empty `str`"),
        ({"endpoints": {"https://a.example/": []}}, "providers.hooks: endpoints: an endpoint needs"),
        ({"allow_networks": ["10.0.0.1/8"]}, "providers.hooks: 10.0.0.1/8 has host bits set"),
        ({"allow_ports": ["22"]}, "providers.hooks: port range '22'"),
        ({"scheme": "md5"}, "providers.hooks.scheme: Invalid enum value 'md5'"),
        ({"nonsense": 1}, "providers.hooks.nonsense: "),
    ],
)
def test_wrong_settings_are_named(http: HttpClient, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        webhook(http, **options)
    assert str(wrong.value).startswith(message)
    assert "c2hvcnQ" not in str(wrong.value)


def test_secrets_never_show(http: HttpClient) -> None:
    provider = webhook(http)
    shown = f"{provider!r} {vars(provider)!r} {json.dumps(repr(vars(provider)['_settings']))}"
    assert SECRET.removeprefix("whsec_") not in shown
    assert "Secret(***)" in shown
