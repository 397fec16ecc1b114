"""Reading a body under limits, and what is said about a wrong one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carillon.web.problems import Problem
from carillon.web.request import Receive, check_head, convert, read_body

LIMIT = 100


def arriving(*chunks: bytes, end: dict[str, Any] | None = None) -> Receive:
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append(end or {"type": "http.request", "body": b"", "more_body": False})
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left)

    return receive


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_a_body_is_whole_or_refused(chunks: list[bytes]) -> None:
    whole = b"".join(chunks)
    if len(whole) <= LIMIT:
        assert asyncio.run(read_body(arriving(*chunks), LIMIT, 1)) == whole
        return
    with pytest.raises(Problem) as caught:
        asyncio.run(read_body(arriving(*chunks), LIMIT, 1))
    assert caught.value.status == 413


async def test_an_endless_body_is_not_read_to_its_end() -> None:
    read = 0

    async def endless() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b"x" * 50, "more_body": True}

    with pytest.raises(Problem):
        await read_body(endless, LIMIT, 1)
    assert read == 3


async def test_a_client_that_leaves_is_a_bad_request() -> None:
    with pytest.raises(Problem) as caught:
        await read_body(arriving(b"half", end={"type": "http.disconnect"}), LIMIT, 1)
    assert caught.value.status == 400


async def test_a_cancelled_future_is_a_client_that_left() -> None:
    async def leaving() -> dict[str, Any]:
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    with pytest.raises(Problem) as caught:
        await read_body(leaving, LIMIT, 1)
    assert caught.value.status == 400


async def test_a_cancelled_request_stays_cancelled() -> None:
    never: Callable[[], Awaitable[dict[str, Any]]] = asyncio.get_running_loop().create_future
    task = asyncio.create_task(read_body(never, LIMIT, 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_body_that_never_comes_times_out() -> None:
    never: Callable[[], Awaitable[dict[str, Any]]] = asyncio.get_running_loop().create_future
    with pytest.raises(Problem) as caught:
        await read_body(never, LIMIT, 0.01)
    assert caught.value.status == 408


@pytest.mark.parametrize(
    "kind",
    [b"application/json", b"Application/JSON", b"application/json; charset=utf-8", b'application/json;charset="UTF-8"'],
)
def test_json_is_welcome(kind: bytes) -> None:
    check_head({b"content-type": kind}, LIMIT)


@pytest.mark.parametrize(
    "kind", [b"", b"text/plain", b"application/json; charset=utf-16", b"application/jsonx", b"multipart/form-data"]
)
def test_anything_else_is_refused(kind: bytes) -> None:
    with pytest.raises(Problem) as caught:
        check_head({b"content-type": kind}, LIMIT)
    assert caught.value.status == 415


@pytest.mark.parametrize(("length", "status"), [(b"101", 413), (b"9" * 30, 413)])
def test_a_length_too_large_is_refused_before_reading(length: bytes, status: int) -> None:
    with pytest.raises(Problem) as caught:
        check_head({b"content-type": b"application/json", b"content-length": length}, LIMIT)
    assert caught.value.status == status


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"deflate", b"identity, gzip"])
def test_compressed_bodies_are_refused(coding: bytes) -> None:
    with pytest.raises(Problem) as caught:
        check_head({b"content-type": b"application/json", b"content-encoding": coding}, LIMIT)
    assert caught.value.status == 415


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(le=3)]


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    inner: list[Inner] = []


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, "name"),
        ({"name": 1}, "name"),
        ({"name": "x", "extra": 1}, "extra"),
        ({"name": "x", "inner": [{"size": 9}]}, "inner[0].size"),
        ({"name": "x", "inner": [{"size": 1}, {"size": 1, "odd": 0}]}, "inner[1].odd"),
        ({"name": "x", "inner": [{}]}, "inner[0].size"),
        ([], None),
    ],
)
@pytest.mark.req("S2-11")
def test_a_wrong_field_is_named(value: object, field: str | None) -> None:
    with pytest.raises(Problem) as caught:
        convert(value, Outer)
    assert caught.value.code == "VALIDATION_ERROR"
    assert [detail.field for detail in caught.value.details] == [field]
