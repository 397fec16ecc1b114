"""What is read from a request's head."""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from carillon.web.endpoint import Routes
from carillon.web.gate import Buckets, host_name, is_loopback
from carillon.web.problems import Problem
from carillon.web.request import Request
from tests.unit.web_parts import endpoint, nothing_to_receive

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def request(*headers: tuple[bytes, bytes], query: bytes = b"") -> Request:
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": query, "headers": list(headers)}
    return Request(scope, nothing_to_receive, 100, 1)


@pytest.mark.req("S2-14")
def test_a_fit_correlation_id_is_kept() -> None:
    assert request((b"x-correlation-id", b"order-17:ab/c=")).correlation_id == "order-17:ab/c="


@pytest.mark.req("S2-14")
@pytest.mark.parametrize("given_id", [b"", b"a b", b"x" * 129, b"a\tb", "ü".encode(), b'"quoted"'])
def test_an_unfit_one_is_replaced(given_id: bytes) -> None:
    made = request((b"x-correlation-id", given_id)).correlation_id
    assert len(made) == 32
    assert made != request((b"x-correlation-id", given_id)).correlation_id


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (f"00-{TRACE}-00f067aa0ba902b7-01", TRACE),
        (f"01-{TRACE}-00f067aa0ba902b7-01-more", TRACE),
        (f"00-{TRACE}-00f067aa0ba902b7-01-more", None),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}", None),
        ("", None),
    ],
)
def test_a_trace_is_taken_from_a_valid_traceparent_only(header: str, trace: str | None) -> None:
    assert request((b"traceparent", header.encode())).trace_id == trace


def test_a_header_given_twice_is_refused_where_one_is_meant() -> None:
    request((b"accept", b"a"), (b"accept", b"b")).check_headers()
    with pytest.raises(Problem) as caught:
        request((b"idempotency-key", b"a"), (b"idempotency-key", b"b")).check_headers()
    assert caught.value.status == 400


class Query(msgspec.Struct, forbid_unknown_fields=True):
    page: int = 1
    word: str | UnsetType = UNSET


def test_a_query_becomes_a_wire_type() -> None:
    found = request(query=b"page=3&word=null").query(Query)
    assert (found.page, found.word) == (3, "null")
    assert request().query(Query).word is UNSET


@pytest.mark.parametrize("query", [b"page=x", b"page=", b"pages=1", b"page=1&page=2", b"word=%ff", b"word=\xff"])
def test_a_wrong_query_is_refused(query: bytes) -> None:
    with pytest.raises(Problem) as caught:
        request(query=query).query(Query)
    assert caught.value.status == 400


@given(st.binary(max_size=60))
def test_no_query_string_breaks_anything(query: bytes) -> None:
    with suppress(Problem):
        request(query=query).query(Query)


@pytest.mark.parametrize(
    "host",
    [
        b"localhost",
        b"localhost:8080",
        b"127.0.0.1:1",
        b"127.8.9.1",
        b"[::1]:8080",
        b"::1",
        b"app.localhost",
        b"LOCALHOST",
    ],
)
def test_loopback_names(host: bytes) -> None:
    assert is_loopback(host_name(host))


@pytest.mark.parametrize(
    "host",
    [
        b"",
        b"evil.example",
        b"localhost.evil.example",
        b"127.0.0.1.evil.example",
        b"10.0.0.1",
        b"0.0.0.0",
        b"[::2]",
        b"a:b:c",
    ],
)
def test_other_names(host: bytes) -> None:
    assert not is_loopback(host_name(host))


def test_a_bucket_runs_dry_and_fills_again() -> None:
    buckets = Buckets(per_second=2.0, burst=3.0)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b", 0.0) == 0.0
    assert buckets.take("a", 0.5) == 0.0
    assert buckets.take("a", 0.5) > 0.0


def test_routes() -> None:
    routes = Routes(
        [endpoint("GET", "/a"), endpoint("POST", "/a"), endpoint("GET", "/a/{id}"), endpoint("PUT", "/b/{id}")]
    )
    assert routes.find("GET", "/a")[0].name == "GET /a"
    assert routes.find("HEAD", "/a")[0].name == "GET /a"
    found, params = routes.find("GET", "/a/x y")
    assert (found.name, params) == ("GET /a/{id}", {"id": "x y"})


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/a/b/c", 404),
        ("DELETE", "/a", 405),
        ("POST", "/a/1", 405),
        ("GET", "/b/1", 405),
        ("GET", "/a/" + "x" * 256, 404),
        ("GET", "/a/\x00", 404),
        ("GET", "/a/\ufffd", 404),
    ],
)
def test_routes_that_lead_nowhere(method: str, path: str, status: int) -> None:
    routes = Routes(
        [endpoint("GET", "/a"), endpoint("POST", "/a"), endpoint("GET", "/a/{id}"), endpoint("PUT", "/b/{id}")]
    )
    with pytest.raises(Problem) as caught:
        routes.find(method, path)
    assert caught.value.status == status
    assert ("Allow" in caught.value.headers) == (status == 405)
