"""Hostile requests to running programs, over sockets, at every operation of every blueprint."""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any
from urllib.parse import urlsplit

from tests.fuzz.mutation import Mutator
from tests.fuzz.running import LIMIT_SECONDS, SERVER_ERROR, Finding, Row, resident_kib
from tests.fuzz.snapshots import Snapshot, changed, still
from tests.support.client import Client
from tests.support.every_blueprint import Blueprint
from tests.support.process import Line, Program
from tests.unit.test_web_auth import SECRET

UUID = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
CONNECTIONS, BATCH, WARM = 48, 400, 800
UNFINISHED_SECONDS, PATIENCE_SECONDS = 0.1, 30.0
MOST_GROWTH_KIB = 128 * 1024
BROKEN = 0.2
"""The share of requests whose framing is left as it came out; the others get the length that their body has."""
REPLAYED = 2000
NOT_SPOKEN = frozenset({501, 505})
"""Another method, transfer coding or version of HTTP than the listener speaks: what the RFC asks it to say."""
UNLIMITED = {"CARILLON_HTTP__REQUESTS_PER_SECOND": "0", "CARILLON_HTTP__ANONYMOUS_REQUESTS_PER_SECOND": "0"}
CLOSED = {"CARILLON_AUTH__SECRET": SECRET}
LISTENERS = {"sse": "h11", "galaxy": "h11"}
"""The blueprints that are not served by granian."""
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_ALIVE = ("/healthz", "/readyz", "/health")
Answer = tuple[int, float]


def operations(client: Client) -> list[bytes]:
    """An honest request for every operation of the running program's document, as bytes."""
    document = client.get("/openapi.json")
    found = [request("GET", path, b"", "") for path in _ALIVE]
    if document.status != 200:
        return found
    for path, held in document.body["paths"].items():
        for method, operation in held.items():
            if method not in {"get", "post", "put", "patch", "delete"}:
                continue
            content = operation.get("requestBody", {}).get("content", {})
            kind = next(iter(content), "")
            examples = content.get(kind, {}).get("examples", {})
            body: Any = next((one["value"] for one in examples.values()), {}) if content else None
            query = "&".join(f"{one['name']}=1" for one in operation.get("parameters", []) if one.get("in") == "query")
            where = re.sub(r"\{\w+\}", UUID, path) + (f"?{query}" if query else "")
            more = "Last-Event-ID: 7\r\n" if "stream" in path else ""
            found.append(request(method.upper(), where, b"" if body is None else json.dumps(body).encode(), kind, more))
    return found


def request(method: str, path: str, body: bytes, kind: str, more: str = "") -> bytes:
    typed = f"Content-Type: {kind}\r\n" if kind else ""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nX-Admin-Override: true\r\n{more}{typed}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def framed(text: bytes) -> bytes:
    """The request with the length that its body has: only its content is wrong."""
    head, mark, body = text.partition(b"\r\n\r\n")
    return _LENGTH.sub(b"Content-Length: %d" % len(body), head) + mark + body


def complete(text: bytes) -> bool:
    """Whether a listener needs no more bytes to answer; where two readings are possible, it may need more."""
    # A listener skips empty lines before a request.
    head, mark, body = text.lstrip(b"\r\n").partition(b"\r\n\r\n")
    lengths = [int(length) for length in _LENGTH.findall(head) if len(length) < 9]
    return bool(mark) and b"transfer-encoding" not in head.lower() and max(lengths, default=0) <= len(body)


async def ask(host: str, port: int, text: bytes) -> Answer:
    """The status of the first answer (0: the connection ended without one) and how long it took."""
    began = time.monotonic()
    status = 0
    writer: asyncio.StreamWriter | None = None
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(text)
        said = asyncio.ensure_future(reader.readline())
        if not complete(text):
            await asyncio.wait({said}, timeout=UNFINISHED_SECONDS)
            if not said.done():
                # A listener waits for a client that has not finished, and that is its right: the client leaves.
                began = time.monotonic()
                writer.write_eof()
        await asyncio.wait({said}, timeout=PATIENCE_SECONDS)
        line = said.result() if said.done() else b""
        said.cancel()
        status = int(line.split()[1]) if line.startswith(b"HTTP/1.") else 0
    if writer is not None:
        writer.close()
    return status, time.monotonic() - began


def log_errors(program: Program) -> list[Line]:
    """What should not be in a log; that a message was given up on is its end and not ours."""
    loud = [line for line in program.lines if line.get("level") in {"error", "critical"}]
    return [line for line in loud if line.get("event") != "route_attempted"]


def answer_class(status: int) -> str:
    if status in NOT_SPOKEN:
        return "501, 505"
    return f"{status // 100}xx" if status else "no answer"


class Campaign:
    """Hostile requests at one running program."""

    def __init__(self, blueprint: Blueprint, program: Program, seeds: Sequence[bytes], seed: int, suffix: str) -> None:
        self._blueprint = blueprint
        self._program = program
        self._seed = seed
        parts = urlsplit(program.wait_ready()["addresses"][0])
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self.row = Row(name=f"{LISTENERS.get(blueprint.name, 'granian')} {blueprint.name}{suffix}", stored=0)
        self._random = Random(f"{self.row.name}/{seed}")
        self._mutator = Mutator(self._random, seeds)
        self.findings: list[Finding] = []
        self._refused: list[bytes] = []

    def run(self, number: int, seconds: float) -> None:
        """So many requests, for so many seconds at most."""
        ends = time.monotonic() + seconds
        before = 0
        while self.row.tried < number and time.monotonic() < ends:
            if not before and self.row.tried >= WARM:
                before = resident_kib(self._program.pid)
            batch = [self._next() for _ in range(min(BATCH, number - self.row.tried))]
            self._feed(batch)
        if before:
            self.row.grown_kib = max(0, resident_kib(self._program.pid) - before)
        if self.row.grown_kib > MOST_GROWTH_KIB:
            self._found(b"", f"the program grew by {self.row.grown_kib // 1024} MiB")

    def nothing_is_kept_of_refused(self) -> None:
        """What was refused is asked again, twice: first to see that it still is, then beside a look at every table."""
        again = self._random.sample(self._refused, min(REPLAYED, len(self._refused)))
        answers = self._feed(again)
        refused = [text for text, (status, _) in zip(again, answers, strict=True) if _refuses(status)]
        before = asyncio.run(still(self._blueprint.own))
        answers = self._feed(refused)
        if all(_refuses(status) for status, _ in answers):
            self._compare(before, refused)

    def nothing_changed(self, before: Snapshot) -> None:
        """Nobody who called was anybody: every table is as it was."""
        self._compare(before, [])

    def errors_in_the_log(self) -> None:
        errors = log_errors(self._program)
        if errors:
            self._found(b"", f"the log says {errors[0]}")
        if self._program.has_ended:
            self._found(b"", f"the program ended: {self._program.tail()}")
        self.row.found = len(self.findings)

    def _compare(self, before: Snapshot, asked: Sequence[bytes]) -> None:
        differ = changed(before, asyncio.run(still(self._blueprint.own)))
        self.row.stored = (self.row.stored or 0) + sum(abs(rows) or 1 for rows in differ.values())
        if differ:
            self._found(b"\n----\n".join(asked[:50]), f"all were refused, and these tables changed: {differ}")

    def _next(self) -> bytes:
        body = self._mutator.next()
        return body if self._random.random() < BROKEN else framed(body)

    def _feed(self, batch: Sequence[bytes]) -> list[Answer]:
        answers = asyncio.run(self._ask_all(batch))
        self.row.tried += len(batch)
        for text, (status, took) in zip(batch, answers, strict=True):
            self.row.count(answer_class(status))
            if status >= SERVER_ERROR and status not in NOT_SPOKEN and self._fails_again(text):
                self._found(text, f"answered {status}")
            elif _refuses(status) and len(self._refused) < 5 * REPLAYED:
                self._refused.append(text)
            self.row.slowest_seconds = max(self.row.slowest_seconds, self._confirmed(text, took))
        return answers

    def _fails_again(self, text: bytes) -> bool:
        """Whether it is the request: that a server does not answer in time is what /health says on a busy machine."""
        if b"/health" not in text.partition(b"\r\n")[0]:
            return True
        if all(asyncio.run(ask(self._host, self._port, text))[0] >= SERVER_ERROR for _ in range(3)):
            return True
        self.row.late += 1
        return False

    def _confirmed(self, text: bytes, took: float) -> float:
        """How long it takes; a busy machine makes anything late once, so a late one is asked three times more.

        The row keeps the first time, and counts it as late: the best of four would look like a limit that is kept.
        """
        if took <= LIMIT_SECONDS:
            return took
        best = min(asyncio.run(ask(self._host, self._port, text))[1] for _ in range(3))
        if best > LIMIT_SECONDS:
            self._found(text, f"took {best:.1f} s, again and again")
        else:
            self.row.late += 1
        return took

    async def _ask_all(self, batch: Sequence[bytes]) -> list[Answer]:
        slots = asyncio.Semaphore(CONNECTIONS)

        async def one(text: bytes) -> Answer:
            async with slots:
                return await ask(self._host, self._port, text)

        return await asyncio.gather(*(one(text) for text in batch))

    def _found(self, text: bytes, error: str) -> None:
        self.findings.append(Finding(self.row.name.replace(" ", "."), self._seed, text, error))


def _refuses(status: int) -> bool:
    # No answer says nothing: the request may have been carried out while its client left.
    return status >= 400


def run(
    blueprint: Blueprint, seed: int, *, number: int, seconds: float, say: Callable[[str], None]
) -> tuple[list[Row], list[Finding]]:
    """One blueprint twice: where everybody may do everything, and where nobody may do anything without a token."""
    rows: list[Row] = []
    findings: list[Finding] = []
    seeds: list[bytes] = []
    for suffix, settings, share in (("", {}, 0.75), (" with tokens", CLOSED, 0.25)):
        program = blueprint.start(CARILLON_LOG__LEVEL="warning", **UNLIMITED, **settings)
        seeds = seeds or operations(Client.of(program))
        campaign = Campaign(blueprint, program, seeds, seed, suffix)
        before = asyncio.run(still(blueprint.own))
        campaign.run(round(number * share), seconds * share)
        if suffix:
            campaign.nothing_changed(before)
        else:
            campaign.nothing_is_kept_of_refused()
        campaign.errors_in_the_log()
        program.close()
        rows.append(campaign.row)
        findings += campaign.findings
        say(f"{campaign.row.name:28} {campaign.row.tried:9,} requests, {len(campaign.findings)} found")
        for found in campaign.findings[:3]:
            say(f"  {found.error[:300]}: {found.body[:300]!r}")
    return rows, findings
