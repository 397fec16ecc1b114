"""Hostile and broken requests: a clear 4xx, nothing stored, never a 500."""

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.http_client import Client, serving
from tests.support.process import Program

SEND = "/api/v1/notifications/send"
MAIL = {
    "templateKey": "welcome",
    "channel": "email",
    "recipient": "ada@example.org",
    "data": {"name": "Ada", "link": "https://example.org/start"},
}
HEAD = (
    b"POST /api/v1/notifications/send HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nConnection: close\r\n"
)
MEGABYTE = 1_048_576


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Client]]:
    with serving(tmp_path_factory.mktemp("http-bad-input")) as both:
        yield both
        # Whatever the tests did, the program saw nothing it had to complain about.
        assert not [line for line in both[0].lines if line["level"] in {"warning", "error", "critical"}]
        assert not both[0].noise


@pytest.fixture
def client(served: tuple[Program, Client]) -> Iterator[Client]:
    client = served[1]
    before = client.count()
    yield client
    assert client.count() == before


def with_data(text: str) -> str:
    """A good body whose `data` is the given JSON text."""
    return json.dumps({**MAIL, "data": 0}).replace('"data": 0', f'"data": {text}')


def deep(levels: int) -> str:
    """A body nested so deep; the body and its data are two of the levels."""
    inner = levels - 2
    return with_data('{"a":' + "[" * (inner) + "]" * (inner) + "}")


BAD_JSON = {
    "33 levels": deep(33),
    "1,000 levels": deep(1000),
    "100,000 levels": deep(100_000),
    "open brackets": "[" * 100_000,
    "NaN": with_data('{"a": NaN}'),
    "Infinity": with_data('{"a": -Infinity}'),
    "1e400": with_data('{"a": 1e400}'),
    "4,301 digits": with_data('{"a": ' + "9" * 4301 + "}"),
    "more than 64 bits": with_data('{"a": 9223372036854775808}'),
    "raw NUL": with_data('{"a": "\x00"}'),
    "escaped NUL": with_data('{"a": "\\u0000"}'),
    "NUL in a name": with_data('{"\\u0000": 1}'),
    "lone surrogate": with_data('{"a": "\\ud800"}'),
    "lone surrogate in a name": with_data('{"\\udc00": 1}'),
    "surrogates the wrong way round": with_data('{"a": "\\udc00\\ud800"}'),
    "name twice": json.dumps(MAIL)[:-1] + ', "channel": "sms"}',
    "name twice inside": with_data('{"a": 1, "a": 2}'),
    "empty": "",
    "blank": "   ",
    "half": json.dumps(MAIL)[:-5],
    "more after it": json.dumps(MAIL) + "{}",
    "single quotes": "{'templateKey': 'welcome'}",
    "comment": "/* hi */ " + json.dumps(MAIL),
    "trailing comma": json.dumps(MAIL)[:-1] + ",}",
    "a list": json.dumps([MAIL]),
    "a word": '"welcome"',
    "null": "null",
}


@pytest.mark.parametrize("name", BAD_JSON)
@pytest.mark.req("S2-11")
def test_json_that_is_not_good(client: Client, name: str) -> None:
    answer = client.call("POST", SEND, BAD_JSON[name], content_type="application/json")
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert len(answer.body) < 2000


@pytest.mark.parametrize("name", BAD_JSON)
def test_the_same_in_a_batch(client: Client, name: str) -> None:
    body = f'{{"notifications": [{BAD_JSON[name]}]}}'
    answer = client.call("POST", "/api/v1/notifications/batch", body, content_type="application/json")
    assert answer.status in {400, 422}
    assert answer.code in {"VALIDATION_ERROR", "BATCH_REJECTED"}


def test_32_levels_are_enough_for_everybody(served: tuple[Program, Client]) -> None:
    body = json.loads(deep(32))
    body["data"].update(MAIL["data"])
    assert served[1].send(body).status == 202


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1"])
def test_text_must_be_utf_8(client: Client, coding: str) -> None:
    body = json.dumps({**MAIL, "data": {"name": "Zoë", "link": "x"}}, ensure_ascii=False).encode(coding)
    answer = client.call("POST", SEND, body, content_type="application/json")
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "application/xml", ""],
)
def test_only_json_is_taken(client: Client, kind: str) -> None:
    answer = client.call("POST", SEND, json.dumps(MAIL), content_type=kind)
    assert (answer.status, answer.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


def test_compressed_bodies_are_not_unpacked(client: Client) -> None:
    packed = gzip.compress(json.dumps(MAIL).encode())
    answer = client.call("POST", SEND, packed, content_type="application/json", content_encoding="gzip")
    assert (answer.status, answer.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


def test_10_megabytes_are_refused_by_their_length(client: Client) -> None:
    pieces = [b" " * MEGABYTE] * 10
    answer = client.raw(HEAD + b"Content-Length: %d\r\n\r\n" % (10 * MEGABYTE), *pieces)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_10_megabytes_in_chunks_are_refused_while_they_come(client: Client) -> None:
    pieces = [b"%x\r\n" % MEGABYTE + b" " * MEGABYTE + b"\r\n"] * 10
    answer = client.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *pieces, b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_body_as_large_as_allowed_is_read(served: tuple[Program, Client]) -> None:
    room = 262_144 - len(with_data('{"name": "", "link": "x"}'))
    fits = with_data('{"name": "' + "x" * room + '", "link": "x"}')
    assert len(fits) == 262_144
    # Read and understood: what is refused is the length of the rendered text, or nothing at all.
    assert served[1].call("POST", SEND, fits, content_type="application/json").status in {202, 400}
    assert served[1].call("POST", SEND, fits + " ", content_type="application/json").status == 413


@pytest.mark.parametrize(
    "wrong",
    [
        {"templateKey": 7},
        {"templateKey": None},
        {"templateKey": "../../etc/passwd"},
        {"templateKey": "welcome\n"},
        {"channel": "fax"},
        {"channel": ["email"]},
        {"priority": "urgent"},
        {"priority": 1},
        {"synchronous": "true"},
        {"isBulk": 1},
        {"data": "x"},
        {"data": ["x"]},
        {"metadata": 1},
        {"userId": {}},
        {"userId": "x" * 256},
        {"userId": "a\tb"},
        {"tenantId": "a/b"},
        {"recipient": "x" * 2001},
        {"recipient": "ada@example.org\r\nBcc: eve@example.org"},
        {"serviceOrigin": "Orders"},
        {"locale": "en_US; DROP TABLE records"},
        {"scheduledFor": 1893456000},
        {"scheduledFor": "2030-13-01T00:00:00Z"},
        {"correlationId": "a\r\nSet-Cookie: x"},
        {"status": "delivered"},
        {"notificationId": "chosen"},
        {"__proto__": {}},
        {"idempotencyKey": "only-in-batches"},
    ],
)
@pytest.mark.req("S2-11")
def test_fields_that_are_wrong(client: Client, wrong: dict[str, Any]) -> None:
    answer = client.send({**MAIL, **wrong})
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")
    assert answer.json["error"]["details"][0]["field"] == next(iter(wrong))


@pytest.mark.parametrize("key", ["k" * 256, "k" * 3000, "a b", '"', '""', '"a', "\u00fc", ""])
def test_keys_that_are_hostile(client: Client, key: str) -> None:
    answer = client.send(MAIL, Idempotency_Key=key)
    assert (answer.status, answer.code) == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize("key", [b"a\x00b", b"a\rb", b"a\x7fb", b"a\x01b"])
def test_keys_no_header_may_hold(client: Client, key: bytes) -> None:
    body = json.dumps(MAIL).encode()
    answer = client.raw(HEAD + b"Content-Length: %d\r\nIdempotency-Key: " % len(body) + key + b"\r\n\r\n" + body)
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_key_given_twice_is_refused(client: Client) -> None:
    body = json.dumps(MAIL).encode()
    twice = b"Idempotency-Key: one\r\nIdempotency-Key: two\r\n"
    answer = client.raw(HEAD + b"Content-Length: %d\r\n" % len(body) + twice + b"\r\n" + body)
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_a_body_cut_short_is_not_accepted(client: Client) -> None:
    body = json.dumps(MAIL).encode()
    answer = client.raw(HEAD + b"Content-Length: %d\r\n\r\n" % (len(body) + 1) + body, hang_up=True)
    assert not answer or answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "path",
    ["/api/v1/notifications/send/", "/api/v1/notifications//send", "/API/V1/notifications/send", "/%2e%2e/", "/..%00"],
)
def test_paths_that_are_not_ours(client: Client, path: str) -> None:
    assert client.call("POST", path, json.dumps(MAIL), content_type="application/json").status in {404, 405}
