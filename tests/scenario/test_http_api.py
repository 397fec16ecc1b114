"""Sending over HTTP: what the composed program answers to producers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_client import Client, serving
from tests.support.process import Program

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
MAIL = {
    "templateKey": "welcome",
    "channel": "email",
    "recipient": "ada@example.org",
    "data": {"name": "Ada", "link": "https://example.org/start"},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Client]]:
    folder = tmp_path_factory.mktemp("http-api")
    _template(folder / "own" / "only-mail" / "en-US" / "email", "Hello {{name}}")
    config = folder / "carillon.toml"
    config.write_text(f'[templates]\nfolders = ["blueprint:templates", "{folder / "own"}"]\n')
    with serving(folder, "--config", str(config)) as both:
        yield both


def _template(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "text.tmpl").write_text(text)
    (folder / "subject.tmpl").write_text(text)


@pytest.fixture
def client(served: tuple[Program, Client]) -> Client:
    return served[1]


@pytest.mark.req("S2-01", "S2-06", "S2-12")
def test_a_notification_is_accepted(client: Client) -> None:
    answer = client.send(MAIL)
    assert answer.status == 202
    assert set(answer.json) == {"notificationId", "status", "queueName"}
    assert answer.json["status"] == "queued"
    assert UUID.fullmatch(answer.json["notificationId"])
    assert answer.headers["location"] == f"/api/v1/notifications/{answer.json['notificationId']}"
    assert "idempotent-replayed" not in answer.headers
    assert client.get(answer.headers["location"]).json["id"] == answer.json["notificationId"]


@pytest.mark.req("S2-02", "G-14")
def test_what_was_said_can_be_read_again(client: Client) -> None:
    said = {
        **MAIL,
        "priority": "high",
        "userId": "ada",
        "tenantId": "acme",
        "serviceOrigin": "orders",
        "isBulk": True,
        "locale": "en-US",
        "metadata": {"campaign": {"id": 7}},
        "scheduledFor": "2020-01-01T01:00:00+01:00",
        "correlationId": "order-17",
    }
    answer = client.send(said)
    assert answer.status == 202, answer.body
    read = client.get(answer.headers["location"]).json
    same = ("templateKey", "channel", "priority", "userId", "tenantId", "recipient", "serviceOrigin", "data", "isBulk")
    assert {name: read[name] for name in same} == {name: said[name] for name in same}
    assert (read["locale"], read["metadata"], read["correlationId"]) == ("en-US", said["metadata"], "order-17")
    assert read["scheduledFor"] == "2020-01-01T00:00:00.000Z"
    assert TIME.fullmatch(read["createdAt"])


@pytest.mark.parametrize("origin", ["auth", "orders", "ridesharing", "products", "system", "anything-else_1"])
@pytest.mark.req("S2-02")
def test_origins(client: Client, origin: str) -> None:
    assert client.send({**MAIL, "serviceOrigin": origin}).status == 202


@pytest.mark.req("S2-02")
def test_variables_are_another_name_for_data(client: Client) -> None:
    renamed = {name: value for name, value in MAIL.items() if name != "data"} | {"variables": MAIL["data"]}
    answer = client.send(renamed)
    assert client.get(answer.headers["location"]).json["data"] == MAIL["data"]
    assert client.send({**MAIL, "variables": {}}).code == "VALIDATION_ERROR"


@pytest.mark.req("S2-03")
def test_the_channel_may_be_left_out_when_the_template_has_only_one(client: Client) -> None:
    answer = client.send({"templateKey": "only-mail", "recipient": "ada@example.org", "data": {"name": "Ada"}})
    assert answer.status == 202, answer.body
    assert client.get(answer.headers["location"]).json["channel"] == "email"
    several = client.send({**{name: value for name, value in MAIL.items() if name != "channel"}})
    assert (several.status, several.code) == (400, "CHANNEL_REQUIRED")
    other = client.send({"templateKey": "only-mail", "recipient": "+4915112345678", "data": {"name": "Ada"}})
    assert (other.status, other.code) == (422, "RECIPIENT_UNRESOLVED")


@pytest.mark.req("S2-04")
@pytest.mark.parametrize("who", [{}, {"userId": "somebody-without-an-address"}])
def test_nobody_to_send_to_is_422_and_nothing_is_stored(client: Client, who: dict[str, str]) -> None:
    before = client.count()
    answer = client.send({"templateKey": "welcome", "channel": "email", "data": MAIL["data"], **who})
    assert (answer.status, answer.code) == (422, "RECIPIENT_UNRESOLVED")
    assert client.count() == before


@pytest.mark.parametrize(
    ("channel", "recipient"),
    [
        ("sms", "015112345678"),
        ("sms", "+0151"),
        ("email", "ada at example.org"),
        ("email", "ada@localhost"),
        ("push", ""),
        ("webhook", "ftp://example.org/x"),
        ("webhook", "https://user:secret@example.org/"),
    ],
)
@pytest.mark.req("S2-05")
def test_recipients_that_no_channel_could_reach(client: Client, channel: str, recipient: str) -> None:
    answer = client.send({**MAIL, "channel": channel, "recipient": recipient})
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert answer.json["error"]["details"][0]["field"] == "recipient"


@pytest.mark.req("S2-10")
def test_an_error_is_a_problem_document_with_our_code_inside(client: Client) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    answer = client.send({}, traceparent=f"00-{trace}-00f067aa0ba902b7-01")
    body = answer.json
    assert {"type", "title", "status", "detail", "instance", "error"} == set(body)
    assert (body["status"], body["instance"]) == (400, "/api/v1/notifications/send")
    error = body["error"]
    assert {"code", "message", "details", "timestamp", "traceId"} == set(error)
    assert error["details"][0]["field"] == "templateKey"
    assert error["traceId"] == trace
    assert TIME.fullmatch(error["timestamp"])


@pytest.mark.req("S2-102", "S2-104")
def test_templates_that_are_not_there_and_variables_that_are_missing(client: Client) -> None:
    before = client.count()
    missing = client.send({**MAIL, "templateKey": "nothing-like-it"})
    assert (missing.status, missing.code) == (404, "TEMPLATE_NOT_FOUND")
    unsaid = client.send({**MAIL, "data": {"name": "Ada"}})
    assert (unsaid.status, unsaid.code) == (400, "TEMPLATE_RENDER_ERROR")
    assert "link" in unsaid.json["detail"]
    assert client.count() == before


def test_synchronous_delivery_is_refused_where_it_is_not_configured(client: Client) -> None:
    answer = client.send({**MAIL, "synchronous": True})
    assert (answer.status, answer.code) == (400, "SYNCHRONOUS_UNAVAILABLE")


@pytest.mark.parametrize("header", ["Idempotency_Key", "X_Idempotency_Key"])
@pytest.mark.req("S2-13")
def test_a_repeated_key_is_answered_with_the_first_acceptance(client: Client, header: str) -> None:
    key = f"once-{header.lower()}"
    before = client.count()
    first = client.send(MAIL, **{header: key})
    again = client.send({**MAIL, "correlationId": "another"}, **{header: f'"{key}"'})
    assert (first.status, again.status) == (202, 202)
    assert again.json == first.json
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert client.count() == before + 1


@pytest.mark.req("S2-13")
def test_a_key_used_for_something_else_is_a_conflict(client: Client) -> None:
    assert client.send(MAIL, Idempotency_Key="taken").status == 202
    other = client.send({**MAIL, "recipient": "bob@example.org"}, Idempotency_Key="taken")
    assert (other.status, other.code) == (409, "IDEMPOTENCY_CONFLICT")
    elsewhere = client.send({**MAIL, "serviceOrigin": "orders"}, Idempotency_Key="taken")
    assert elsewhere.status == 202
    assert "idempotent-replayed" not in elsewhere.headers


def test_two_headers_must_agree(client: Client) -> None:
    assert client.send(MAIL, Idempotency_Key='"agreed"', X_Idempotency_Key="agreed").status == 202
    assert client.send(MAIL, Idempotency_Key="one", X_Idempotency_Key="other").code == "VALIDATION_ERROR"


@pytest.mark.req("S2-13")
def test_a_refused_request_does_not_use_its_key_up(client: Client) -> None:
    assert client.send({**MAIL, "templateKey": "nothing"}, Idempotency_Key="second-try").status == 404
    assert client.send(MAIL, Idempotency_Key="second-try").status == 202


@pytest.mark.req("S2-14")
def test_correlation_ids_are_echoed_or_made(client: Client) -> None:
    assert client.send(MAIL, X_Correlation_Id="mine-1").headers["x-correlation-id"] == "mine-1"
    assert client.send({}, X_Correlation_Id="mine-2").headers["x-correlation-id"] == "mine-2"
    assert client.get("/healthz", X_Correlation_Id="mine-3").headers["x-correlation-id"] == "mine-3"
    made = client.send(MAIL)
    assert len(made.headers["x-correlation-id"]) == 32
    assert client.get(made.headers["location"]).json["correlationId"] == made.headers["x-correlation-id"]
    assert client.send(MAIL, X_Correlation_Id="not fit").headers["x-correlation-id"] != "not fit"


@pytest.mark.parametrize(
    ("said", "queue"),
    [
        ({}, "standard"),
        ({"priority": "normal"}, "standard"),
        ({"priority": "high"}, "priority"),
        ({"priority": "high", "isBulk": True}, "priority"),
        ({"priority": "low"}, "bulk"),
        ({"isBulk": True}, "bulk"),
        ({"priority": "low", "isBulk": True}, "bulk"),
    ],
)
@pytest.mark.req("S2-16")
def test_lanes(client: Client, said: dict[str, Any], queue: str) -> None:
    assert client.send({**MAIL, **said}).json["queueName"] == queue


def test_a_batch_is_judged_item_by_item(client: Client) -> None:
    before = client.count()
    answer = client.batch([MAIL, {**MAIL, "templateKey": "none"}, 17, {**MAIL, "extra": 1}, {**MAIL, "userId": "ada"}])
    assert answer.status == 202
    assert (answer.json["accepted"], answer.json["rejected"]) == (2, 3)
    results = answer.json["results"]
    assert [result["index"] for result in results] == [0, 1, 2, 3, 4]
    assert [result["status"] for result in results] == ["queued", "rejected", "rejected", "rejected", "queued"]
    assert [result["error"]["code"] for result in results[1:4]] == ["TEMPLATE_NOT_FOUND"] + ["VALIDATION_ERROR"] * 2
    assert results[3]["error"]["field"] == "notifications[3].extra"
    assert results[0]["queueName"] == "standard"
    assert client.count() == before + 2


def test_a_batch_without_one_good_item_is_422(client: Client) -> None:
    answer = client.batch([{**MAIL, "templateKey": "none"}, {}])
    assert (answer.status, answer.code) == (422, "BATCH_REJECTED")
    assert [result["index"] for result in answer.json["results"]] == [0, 1]


@pytest.mark.parametrize("items", [[], [MAIL] * 501, None, {"a": 1}])
def test_a_batch_has_between_1_and_500_items(client: Client, items: Any) -> None:
    before = client.count()
    assert client.batch(items).code == "VALIDATION_ERROR"
    assert client.count() == before


@pytest.mark.req("S2-13")
def test_a_batch_s_key_covers_every_item(client: Client) -> None:
    before = client.count()
    items = [MAIL, {**MAIL, "idempotencyKey": "own"}, {**MAIL, "recipient": "bob@example.org"}]
    first = client.batch(items, Idempotency_Key='"batch-1"')
    again = client.batch(items, Idempotency_Key="batch-1")
    ids = [result["notificationId"] for result in first.json["results"]]
    assert [result["notificationId"] for result in again.json["results"]] == ids
    assert all(result["replayed"] for result in again.json["results"])
    assert client.count() == before + 3
    assert client.send(MAIL, Idempotency_Key="own").json["notificationId"] == ids[1]
    assert client.send(items[2], Idempotency_Key="batch-1/2").json["notificationId"] == ids[2]
    assert client.batch([MAIL], Idempotency_Key="k" * 252).code == "VALIDATION_ERROR"


def test_a_batch_can_be_full(client: Client) -> None:
    before = client.count()
    answer = client.batch([MAIL] * 500)
    assert (answer.status, answer.json["accepted"]) == (202, 500)
    assert client.count() == before + 500
