"""ClickHouse over HTTP, the real engine inside: `python -m tests.support.clickhouse_server PORT FOLDER`."""

import json
import re
import sys
import tempfile
from typing import Any

import lz4.frame  # type: ignore[import-untyped]
from aiohttp import web
from backports import zstd
from chdb import session

_INSERT = re.compile(rb"\s*INSERT\s+INTO\s+(?P<into>.+?)\s+FORMAT\s+Native\s*?\n", re.DOTALL | re.IGNORECASE)
_FORMAT = re.compile(r"\sFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)")
# What the protocol itself takes in the query string; the rest of it are settings.
_PROTOCOL = frozenset({"query", "database", "default_format", "session_id", "query_id", "compress"})


def _body(raw: bytes, encoding: str | None) -> bytes:
    match encoding:
        case "lz4":
            return bytes(lz4.frame.decompress(raw))
        case "zstd":
            return bytes(zstd.decompress(raw))
        case _:
            return raw


class Served:
    """One question at a time, as the engine has it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        untyped: Any = session
        self._session = untyped.Session(f"{folder}/data")

    async def answer(self, request: web.Request) -> web.Response:
        # aiohttp itself undoes what the standard names, not ClickHouse's own.
        body = _body(await request.read(), request.headers.get("Content-Encoding"))
        text = request.query.get("query", "").encode()
        whole = text + (b"\n" if text and body else b"") + body
        try:
            return self._insert(whole) if _INSERT.match(whole) else self._ask(whole.decode(), request)
        except RuntimeError as error:
            code = _CODE.search(str(error))
            headers = {"X-ClickHouse-Exception-Code": code[1] if code else "1"}
            return web.Response(status=500, text=str(error), headers=headers)

    def _insert(self, whole: bytes) -> web.Response:
        found = _INSERT.match(whole)
        assert found is not None
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".native") as block:
            block.write(whole[found.end() :])
            block.flush()
            into = found["into"].decode()
            self._session.query(f"INSERT INTO {into} FROM INFILE '{block.name}' FORMAT Native")
        return web.Response(headers={"X-ClickHouse-Summary": json.dumps({})})

    def _ask(self, statement: str, request: web.Request) -> web.Response:
        given = {name[6:]: value for name, value in request.query.items() if name.startswith("param_")}
        named = _FORMAT.search(statement)
        shape = named[1] if named else request.query.get("default_format", "TabSeparated")
        result = self._session.query(_FORMAT.sub("", statement), shape, params=given)
        data = result.bytes() if result is not None else b""
        headers = {"X-ClickHouse-Format": shape, "X-ClickHouse-Timezone": "UTC", "X-ClickHouse-Summary": "{}"}
        return web.Response(body=bytes(data or b""), headers=headers)


async def pong(_request: web.Request) -> web.Response:
    return web.Response(text="Ok.\n")


def main(port: int, folder: str) -> None:
    served = Served(folder)
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/", served.answer)
    app.router.add_get("/ping", pong)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
