"""Sends one request over a kept HTTP/1.1 connection and retries it where a retry is safe."""

import http.client
import json
import random
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from carillon.client.wire import ApiAnswer, ApiRequest
from carillon.domain.errors import CarillonError

TOO_MANY, BUSY = 429, frozenset({429, 502, 503, 504})
FIRST_ERROR = 400
UNEXPECTED = "UNEXPECTED"
_TRY_LATER = frozenset({"UNAVAILABLE", "TOO_MANY_REQUESTS", UNEXPECTED})
"""Codes that say nothing about the request: the server was busy, or something before it answered in its place."""


class Rejected(CarillonError):
    """Carillon refused the request; sending it again unchanged does not help."""

    def __init__(self, status: int, code: str, message: str, problem: dict[str, Any]) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        """The stable word, e.g. `TEMPLATE_NOT_FOUND`."""
        self.problem = problem
        """The whole problem document."""


class Unreachable(CarillonError):
    """No usable answer came in time; Carillon may have accepted the request all the same.

    Sending again with the same `idempotency_key` is safe: it is accepted once.
    """

    def __init__(self, message: str, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.idempotency_key = idempotency_key


Answered = TypeVar("Answered")


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """The timeout of one try, the number of tries, and the waits between them."""

    timeout_seconds: float = 10.0
    tries: int = 5
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 5.0

    def wait(self, tried: int, asked: float | None, dice: float) -> float:
        """The seconds before the next try: full jitter, or the `Retry-After` of the server up to the longest wait."""
        own = min(self.first_wait_seconds * 2.0 ** (tried - 1), self.longest_wait_seconds) * dice
        return own if asked is None else max(own, min(asked, self.longest_wait_seconds))


class NotConnected(CarillonError):
    """The connection failed before the request was sent, so a retry is always safe."""


class HttpExchange:
    """Thread-safe; keeps connections open for the next request."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        patience: Patience,
        context: ssl.SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
        dice: Callable[[], float] = random.random,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not _resolvable(parts.hostname):
            raise ValueError(f"{url!r} is not an http:// or https:// address")
        self._host, self._port = parts.hostname, parts.port
        self._secure = parts.scheme == "https"
        self._prefix = parts.path.rstrip("/")
        self._headers = dict(headers)
        self._patience = patience
        self._context = context or (ssl.create_default_context() if self._secure else None)
        self._sleep = sleep
        self._dice = dice
        self._kept: deque[http.client.HTTPConnection] = deque(maxlen=64)

    def run(self, asked: ApiRequest[Answered]) -> Answered:
        """Raises Rejected when Carillon refuses, Unreachable when no usable answer came in time."""
        for tried in range(1, self._patience.tries + 1):
            last = tried == self._patience.tries
            try:
                answer = self._once(asked)
            except NotConnected as error:
                if last:
                    raise Unreachable(f"{self._where}: {error}", asked.key) from None
                wait = self._patience.wait(tried, None, self._dice())
            except (OSError, http.client.HTTPException) as error:
                if last or not asked.repeatable:
                    raise Unreachable(f"{self._where}: {str(error) or type(error).__name__}", asked.key) from None
                wait = self._patience.wait(tried, None, self._dice())
            else:
                if answer.status not in BUSY or last or not (asked.repeatable or answer.status == TOO_MANY):
                    return read_answer(asked, answer, self._where)
                wait = self._patience.wait(tried, _seconds(answer.headers.get("retry-after")), self._dice())
            self._sleep(wait)
        raise AssertionError("there is at least one try")

    def close(self) -> None:
        """Close the kept connections."""
        while self._kept:
            self._kept.pop().close()

    @property
    def _where(self) -> str:
        return f"{self._host}:{self._port}" if self._port else self._host

    def _once(self, asked: ApiRequest[Any]) -> ApiAnswer:
        # The server may close a kept connection at any moment; a new connection shows whether it is reachable. What
        # must not be sent twice goes over a new one at once.
        kept = self._kept.pop() if self._kept and asked.repeatable else None
        if kept is not None:
            try:
                return self._over(kept, asked)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                kept.close()
        connection = self._connected()
        return self._over(connection, asked)

    def _connected(self) -> http.client.HTTPConnection:
        timeout = self._patience.timeout_seconds
        if self._secure:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            raise NotConnected(str(error)) from error
        return connection

    def _over(self, connection: http.client.HTTPConnection, asked: ApiRequest[Any]) -> ApiAnswer:
        headers = {**self._headers, **asked.headers}
        if connection.sock is not None:
            connection.sock.settimeout(max(self._patience.timeout_seconds, asked.takes_seconds))
        if asked.body is not None:
            headers["Content-Type"] = "application/json"
        try:
            # A server that refuses a long body answers before it has read it, and closes: its answer can be read.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(asked.method, self._prefix + asked.path, body=asked.body, headers=headers)
            response = connection.getresponse()
            body = response.read(asked.largest + 1)
        except BaseException:
            connection.close()
            raise
        if len(body) > asked.largest:
            # The rest of it would be in the way of the next answer.
            connection.close()
            raise Unreachable(f"{self._where}: the answer is longer than {asked.largest} bytes", asked.key)
        if response.will_close:
            connection.close()
        else:
            self._kept.append(connection)
        return ApiAnswer(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def _resolvable(host: str) -> bool:
    """Whether a resolver can be asked for the host: it raises UnicodeError for labels that are empty or too long."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def read_answer(asked: ApiRequest[Answered], answer: ApiAnswer, where: str) -> Answered:
    """What an answer says; raises Rejected for a refusal, Unreachable for `try later` and for what no Carillon says."""
    if answer.status >= FIRST_ERROR and answer.status not in asked.understood:
        refusal = refused(answer.status, answer.body)
        if answer.status in BUSY and refusal.code in _TRY_LATER:
            raise Unreachable(f"{where} answers {answer.status}: {refusal}", asked.key)
        raise refusal
    try:
        return asked.read(answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreachable(f"{where} does not answer as Carillon does: {error}", asked.key) from None


def refused(status: int, body: bytes) -> Rejected:
    """The exception for a problem document."""
    problem = _problem(body)
    said = problem.get("error")
    said = said if isinstance(said, dict) else {}
    code, message = said.get("code", UNEXPECTED), said.get("message") or problem.get("title", "no reason")
    return Rejected(status, str(code), str(message), problem)


def _problem(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdigit() else None
