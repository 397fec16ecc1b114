"""The FCM provider over the wire, against a stub that checks like Google and beside what Google's libraries send."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carillon.domain.claims import Dispatch
from carillon.domain.notifications import Message
from carillon.domain.outcomes import Outcome, Refused, Sent, Throttled, Unavailable, Unknown
from carillon.domain.ports import Probed
from carillon.providers import load
from carillon.providers.fcm.send import Fcm
from carillon.providers.http import HttpClient
from tests.support.dispatches import dispatch, tools
from tests.support.fcm_stub import PROJECT, SERVER_KEY, STATUSES, FcmStub, error, fcm_error, legacy, recorded
from tests.support.ports import free_port
from tests.support.vendor import Reply

DEVICE = "fcm_device_token_xyz123"
TRACE = "a3f5b9c1-2d4e-4a5f-9b2c-7e8d9f1a2b3c"
VARIABLES = {"name": "John Doe", "link": "https://example.com/welcome"}
WELCOME = Message(text="Welcome John Doe! Visit: https://example.com/welcome", subject="Welcome John Doe!")
SEND = "/v1/projects/carillon-test/messages:send"
USUAL = {code: f"HTTP {status} {code}: {text}" for code, (status, _, text) in STATUSES.items()}


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[FcmStub]:
    with FcmStub(tmp_path / "fcm.jsonl") as stub:
        yield stub


@pytest.fixture
async def v1(stub: FcmStub, http: HttpClient, tmp_path: Path) -> AsyncIterator[Fcm]:
    provider = fcm(http, base_url=stub.url, credentials_file=stub.key_file(tmp_path))
    yield provider
    await provider.aclose()


@pytest.fixture
def old(stub: FcmStub, http: HttpClient) -> Fcm:
    return fcm(http, base_url=stub.url, server_key=SERVER_KEY)


def fcm(http: HttpClient, **options: Any) -> Fcm:
    provider = load("fcm", "fcm", {"with_id": False, **options}, tools(http))
    assert isinstance(provider, Fcm)
    return provider


def push(address: str | None = DEVICE, payload: object = VARIABLES, **fields: Any) -> Dispatch:
    given: dict[str, Any] = {"message": WELCOME, "channel": "push", "trace_id": TRACE} | fields
    return dispatch(address=address, payload=payload, **given)


@pytest.mark.req("S0-33", "S0-34")
async def test_the_legacy_form_is_the_documents(stub: FcmStub, old: Fcm) -> None:
    sent = await old.send(push())
    [entry] = stub.sends
    assert (entry["method"], entry["path"]) == ("POST", "/fcm/send")
    assert entry["headers"]["authorization"] == f"key={SERVER_KEY}"
    assert entry["headers"]["content-type"] == "application/json"
    assert json.loads(entry["body"]) == {
        "to": "fcm_device_token_xyz123",
        "notification": {
            "title": "Welcome John Doe!",
            "body": "Welcome John Doe! Visit: https://example.com/welcome",
        },
        "data": {"trace_id": TRACE, "link": "https://example.com/welcome"},
    }
    assert sent == Sent("0:1500000001%31bd1c96")


@pytest.mark.req("S0-36", "S2-56")
async def test_v1_sends_what_googles_own_libraries_send(stub: FcmStub, v1: Fcm) -> None:
    sent = await v1.send(push())
    untitled = Message(text=WELCOME.text)
    assert isinstance(await v1.send(push(message=untitled, payload={"x": 1}, trace_id=None)), Sent)
    first, second = stub.sends
    theirs = recorded()["sends"]
    for entry, oracle in (
        (first, theirs["firebase-admin"]["seed"]),
        (first, theirs["google-api-python-client"]["seed"]),
        (second, theirs["firebase-admin"]["untitled"]),
    ):
        assert json.loads(entry["body"]) == oracle["body"]
        assert (entry["method"], entry["path"]) == (oracle["method"], oracle["path"].partition("?")[0])
        assert entry["headers"]["content-type"] == oracle["content_type"]
        assert entry["headers"]["authorization"].split(".")[0] == oracle["authorization"]
    assert recorded()["path"].replace("{+parent}", f"projects/{PROJECT}") == SEND.lstrip("/")
    assert isinstance(sent, Sent)
    assert sent.message_id is not None
    assert sent.message_id.startswith(f"projects/{PROJECT}/messages/0:")


async def test_the_stub_refuses_what_google_would(v1: Fcm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the shape: a field, a type or a key that Google does not know is seen."""
    bodies: list[Any] = [
        {"message": {"token": DEVICE, "notification": {"titel": "x"}}},
        {"message": {"token": DEVICE, "data": {"count": 7}}},
        {"message": {"token": 7}},
        {"massage": {}},
    ]
    for body in bodies:
        monkeypatch.setattr("carillon.providers.fcm.send.v1_body", lambda *_, body=body: msgspec.json.encode(body))
        outcome = await v1.send(push())
        assert isinstance(outcome, Refused)
        assert (outcome.classification, outcome.recipient_gone) == ("invalid_argument", False)


@pytest.mark.req("S0-35")
async def test_data_is_the_trace_and_the_chosen_variables_as_text(stub: FcmStub, http: HttpClient) -> None:
    payload = {"link": 7, "a": True, "b": None, "c": {"y": [1.5], "x": "ü"}, "other": "kept back"}
    chosen = fcm(http, base_url=stub.url, server_key=SERVER_KEY, data_variables=["link", "a", "b", "c", "missing"])
    await chosen.send(push(payload=payload))
    await fcm(http, base_url=stub.url, server_key=SERVER_KEY).send(push(payload={"name": "John"}))
    first, second = (json.loads(entry["body"])["data"] for entry in stub.sends)
    assert first == {"trace_id": TRACE, "link": "7", "a": "true", "c": '{"x":"ü","y":[1.5]}'}
    assert second == {"trace_id": TRACE}


@pytest.mark.req("X2-7")
@pytest.mark.parametrize(
    ("priority", "words"),
    [(1, ("HIGH", "10", "high")), (2, ("NORMAL", "5", "normal")), (3, ("NORMAL", "5", "normal"))],
)
async def test_the_id_and_the_priority_are_carried(
    stub: FcmStub, http: HttpClient, tmp_path: Path, priority: int, words: tuple[str, str, str]
) -> None:
    android, apns, older_word = words
    newer = fcm(http, base_url=stub.url, credentials_file=stub.key_file(tmp_path), with_id=True)
    assert isinstance(await newer.send(push(priority=priority, notification_id="n-7")), Sent)
    message = json.loads(stub.sends[-1]["body"])["message"]
    assert message["data"]["notification_id"] == "n-7"
    assert (message["android"], message["apns"]) == ({"priority": android}, {"headers": {"apns-priority": apns}})
    await newer.aclose()
    older = fcm(http, base_url=stub.url, server_key=SERVER_KEY, with_id=True)
    assert isinstance(await older.send(push(priority=priority, notification_id="n-7")), Sent)
    body = json.loads(stub.sends[-1]["body"])
    assert (body["priority"], body["data"]["notification_id"]) == (older_word, "n-7")


async def test_a_tagged_repeat_replaces_what_was_shown(stub: FcmStub, http: HttpClient, tmp_path: Path) -> None:
    tagging = fcm(http, base_url=stub.url, credentials_file=stub.key_file(tmp_path), replace_repeats=True)
    for fields in ({"attempt": 1}, {"attempt": 2, "token": 2}, {"notification_id": "another"}):
        assert isinstance(await tagging.send(push(**fields)), Sent)
    bodies = [json.loads(entry["body"]) for entry in stub.sends]
    tags = [body["message"]["android"]["notification"]["tag"] for body in bodies]
    assert tags[0] == tags[1] != tags[2]
    oracle = json.dumps(recorded()["sends"]["firebase-admin"]["tagged"]["body"]).replace("0f" * 32, tags[0])
    assert bodies[0] == json.loads(oracle)
    await tagging.aclose()
    await fcm(http, base_url=stub.url, server_key=SERVER_KEY, replace_repeats=True).send(push())
    assert json.loads(stub.sends[-1]["body"])["notification"]["tag"] == tags[0]


NO_TOKEN = "The registration token is not a valid FCM registration token"


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (fcm_error("UNREGISTERED"), Refused(USUAL["UNREGISTERED"], "unregistered", recipient_gone=True)),
        (fcm_error("INVALID_ARGUMENT"), Refused(USUAL["INVALID_ARGUMENT"], "invalid_token", recipient_gone=True)),
        (
            fcm_error("INVALID_ARGUMENT", message="Bad.", fields=["message.token"]),
            Refused("HTTP 400 INVALID_ARGUMENT: Bad.", "invalid_token", recipient_gone=True),
        ),
        *(
            (reply, Refused(f"HTTP 400 INVALID_ARGUMENT: {text}", "invalid_argument"))
            for reply, text in (
                (fcm_error("INVALID_ARGUMENT", message="Message is too big."), "Message is too big."),
                (fcm_error("INVALID_ARGUMENT", message=NO_TOKEN, fields=["message.data[0].value"]), NO_TOKEN),
                (fcm_error("INVALID_ARGUMENT", message="Two", fields=["message.token", "message.ttl"]), "Two"),
                (fcm_error("INVALID_ARGUMENT", message=NO_TOKEN, fields=[]), NO_TOKEN),
                (error(400, "INVALID_ARGUMENT", NO_TOKEN), NO_TOKEN),
            )
        ),
        (fcm_error("SENDER_ID_MISMATCH"), Refused(USUAL["SENDER_ID_MISMATCH"], "sender_mismatch")),
        (fcm_error("QUOTA_EXCEEDED"), Throttled(USUAL["QUOTA_EXCEEDED"], 60.0)),
        (fcm_error("UNAVAILABLE"), Unavailable(USUAL["UNAVAILABLE"], "vendor_unavailable")),
        (fcm_error("INTERNAL"), Unavailable(USUAL["INTERNAL"], "vendor_internal")),
        (fcm_error("THIRD_PARTY_AUTH_ERROR"), Refused(USUAL["THIRD_PARTY_AUTH_ERROR"], "third_party_auth")),
        (error(403, "PERMISSION_DENIED", "no"), Refused("HTTP 403 PERMISSION_DENIED: no", "bad_credentials")),
        # Somebody else's 404 says nothing about a device.
        (error(404, "NOT_FOUND", "no"), Refused("HTTP 404 NOT_FOUND: no", "http_404")),
        (
            Reply(404, body={"error": {"message": "no", "details": [{"@type": "else", "errorCode": "UNREGISTERED"}]}}),
            Refused("HTTP 404 no", "http_404"),
        ),
        (Reply(404, body=b"<html>lost</html>"), Refused("HTTP 404 <html>lost</html>", "http_404")),
        (Reply(429, {"Retry-After": "7"}, b""), Throttled("HTTP 429", 7.0)),
        (Reply(503, {"Retry-After": "3"}, b""), Unavailable("HTTP 503", "http_503", 3.0)),
        (Reply(408, body=b""), Unknown("HTTP 408", "http_408")),
        (Reply(302, {"Location": "/"}, b""), Unavailable("HTTP 302", "http_302")),
        (Reply(500, body=f'{{"error": {{"message": "no {DEVICE}"}}}}'), Unavailable("HTTP 500 no ***", "http_500")),
        *((Reply(500, body=body), None) for body in (b"[]", b'"x"', b'{"error":[1]}', b'{"error":{"details":[1]}}')),
        (Reply(200, body=b"nonsense"), Sent()),
    ],
)
async def test_v1_answers(stub: FcmStub, v1: Fcm, reply: Reply, outcome: Outcome | None) -> None:
    stub.devices[DEVICE] = reply
    found = await v1.send(push())
    assert found == outcome if outcome is not None else isinstance(found, Unavailable)
    assert len(stub.sends) == 1


@pytest.mark.req("S0-38")
@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (legacy(message_id="0:1"), Sent("0:1")),
        (Reply(200, body=b""), Sent()),
        (Reply(200, body=b"fine"), Sent()),
        (Reply(200, body={"success": 1, "failure": 0}), Sent()),
        (legacy(error="NotRegistered"), Refused("HTTP 200 NotRegistered", "unregistered", recipient_gone=True)),
        (
            legacy(error="InvalidRegistration"),
            Refused("HTTP 200 InvalidRegistration", "invalid_token", recipient_gone=True),
        ),
        (legacy(error="MismatchSenderId"), Refused("HTTP 200 MismatchSenderId", "sender_mismatch")),
        (legacy(error="Unavailable"), Unavailable("HTTP 200 Unavailable", "vendor_unavailable")),
        (legacy(error="InternalServerError"), Unavailable("HTTP 200 InternalServerError", "vendor_internal")),
        (
            legacy(error="DeviceMessageRateExceeded"),
            Throttled("HTTP 200 DeviceMessageRateExceeded", 60.0, "device_quota"),
        ),
        (legacy(error="Novel"), Unavailable("HTTP 200 Novel", "http_200")),
        (Reply(200, body={"failure": 1}), Unavailable("HTTP 200 failure", "http_200")),
        (Reply(400, body="Error=InvalidTtl"), Refused("HTTP 400 Error=InvalidTtl", "invalid_argument")),
        (Reply(401, body="no"), Refused("HTTP 401 no", "bad_credentials")),
        (Reply(404, body="no"), Refused("HTTP 404 no", "http_404")),
        (Reply(503, {"Retry-After": "3"}, "no"), Unavailable("HTTP 503 no", "http_503", 3.0)),
    ],
)
async def test_legacy_answers(stub: FcmStub, old: Fcm, reply: Reply, outcome: Outcome) -> None:
    stub.devices[DEVICE] = reply
    assert await old.send(push()) == outcome
    assert len(stub.sends) == 1


async def test_the_operator_knows_better(stub: FcmStub, http: HttpClient) -> None:
    told = {"401": {"outcome": "unavailable", "classification": "key_expired"}}
    provider = fcm(http, base_url=stub.url, server_key="wrong", answers=told)
    found = await provider.send(push())
    assert isinstance(found, Unavailable)
    assert found.classification == "key_expired"


async def test_silence_is_unknown_and_a_closed_door_unavailable(stub: FcmStub, v1: Fcm, http: HttpClient) -> None:
    stub.answer(Reply(hang=True), Reply(reset=True), path=SEND)
    assert isinstance(await v1.send(push(timeout_seconds=2.0)), Unknown)
    assert isinstance(await v1.send(push()), Unknown)
    closed = fcm(http, base_url=f"http://127.0.0.1:{free_port()}", server_key=SERVER_KEY)
    assert isinstance(await closed.send(push()), Unavailable)


@pytest.mark.parametrize("address", ["/topics/all", "'a' in topics", "", None, "a b"])
async def test_only_a_device_is_an_address(stub: FcmStub, old: Fcm, address: str | None) -> None:
    assert isinstance(await old.send(push(address)), Refused)
    assert isinstance(await old.send(push(message=None)), Refused)
    assert not stub.entries


async def test_a_probe_is_authenticated_and_never_a_message(stub: FcmStub, v1: Fcm, old: Fcm) -> None:
    assert isinstance(v1, Probed)
    assert [await v1.probe(), await old.probe()] == [None, None]
    first, second = (json.loads(entry["body"]) for entry in stub.sends)
    assert first["validate_only"] is True
    assert second["dry_run"] is True
    stub.answer(error(403, "PERMISSION_DENIED", "no"), Reply(503, body="no"), Reply(200, body="no"))
    assert [await v1.probe(), await old.probe()] == ["HTTP 403 PERMISSION_DENIED: no", "HTTP 503 no"]
