"""Files over HTTP, on both servers: packed for those who unpack, and sent once to those who keep them."""

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from carillon.web import Server, ServerSettings, app
from carillon.web.files import fixed
from carillon.web.h11_server import StreamServer

LONG = b"const bell = 1;\n" * 200
SHORT = b"const bell = 1;\n"
PLAIN = {"Accept-Encoding": "identity"}


@asynccontextmanager
async def served(kind: type[Server | StreamServer]) -> AsyncIterator[aiohttp.ClientSession]:
    application = app([fixed("/long.js", LONG, "js"), fixed("/short.js", lambda: SHORT, "js")])
    server = kind(application, ServerSettings(host="127.0.0.1", port=0))
    await server.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}", auto_decompress=False) as session:
            yield session
    finally:
        await server.stop(1.0)


both = pytest.mark.parametrize("kind", [Server, StreamServer])


@both
@pytest.mark.req("P-641")
@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip, deflate, br", True),
        ("GZIP;q=0.5", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q=0.000, br", False),
        ("xgzip", False),
        ("", False),
    ],
)
async def test_those_who_unpack_get_it_packed(
    kind: type[Server | StreamServer], accepted: str, *, packed: bool
) -> None:
    async with served(kind) as session, session.get("/long.js", headers={"Accept-Encoding": accepted}) as answer:
        body = await answer.read()
        assert (answer.headers.get("Content-Encoding") == "gzip") is packed
        assert (gzip.decompress(body) if packed else body) == LONG
        assert int(answer.headers["Content-Length"]) == len(body)
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    async with served(kind) as session, session.get("/short.js", headers={"Accept-Encoding": accepted}) as answer:
        assert await answer.read() == SHORT, "a short one is as quick as it is"


@both
@pytest.mark.req("P-641")
@pytest.mark.parametrize("headers", [{"Accept-Encoding": "gzip"}, PLAIN])
async def test_what_the_caller_has_is_not_sent_again(
    kind: type[Server | StreamServer], headers: dict[str, str]
) -> None:
    async with served(kind) as session:
        async with session.get("/long.js", headers=headers) as first:
            await first.read()
            tag = first.headers["ETag"]
        for said in (tag, f"W/{tag}", f'"other", {tag}'):
            async with session.get("/long.js", headers={**headers, "If-None-Match": said}) as again:
                assert (again.status, await again.read()) == (304, b"")
                assert (again.headers["ETag"], again.headers["Cache-Control"]) == (tag, "no-cache")
        for said in ('"other"', "", tag.strip('"')):
            async with session.get("/long.js", headers={**headers, "If-None-Match": said}) as again:
                assert again.status == 200
        async with session.head("/long.js", headers=headers) as head:
            assert (head.status, head.headers["ETag"], await head.read()) == (200, tag, b"")


@both
async def test_the_packed_and_the_plain_form_have_tags_of_their_own(kind: type[Server | StreamServer]) -> None:
    async with served(kind) as session:
        async with session.get("/long.js", headers={"Accept-Encoding": "gzip"}) as packed:
            tag = packed.headers["ETag"]
        async with session.get("/long.js", headers={**PLAIN, "If-None-Match": tag}) as plain:
            assert (plain.status, await plain.read()) == (200, LONG)
