"""Calls a running Carillon over HTTP, with the standard library alone."""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

import msgspec
import typer

from carillon.domain.errors import CarillonError

PATIENCE_SECONDS = 30
OK, UNAUTHORIZED, NOT_FOUND, TOO_MANY = 200, 401, 404, 429
_SERVER_ERROR = 500

HERE = "http://127.0.0.1:8080"
PORT = "CARILLON_HTTP__PORT"
RUNNING = Path("carillon.db-url")
"""Beside the ledger's file, while processes serve it: their addresses, that of the youngest process first."""


def _running_here(context: typer.Context, url: str) -> str:
    """The address of the process that serves this folder's ledger, or this shell's port, unless the user named one."""
    source = context.get_parameter_source("url")
    if source is None or source.name != "DEFAULT":
        return web_address(url)
    for found in addresses_in(RUNNING):
        return found
    # A ledger on PostgreSQL has no file beside which the address could be.
    port = os.environ.get(PORT, "").strip()
    return f"http://127.0.0.1:{port}" if port.isdecimal() and int(port) else url


def addresses_in(file: Path) -> list[str]:
    """The addresses that processes have left beside their ledger."""
    with suppress(OSError, UnicodeDecodeError):
        return [line for line in file.read_text(encoding="utf-8").split() if line.startswith("http://")]
    return []


def web_address(url: str) -> str:
    """The address as every command joins a path to it."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and parts.path.isascii()
        # As the resolver writes a host: it fails for labels that are empty or too long.
        (parts.hostname or "").encode("idna")
    except ValueError:
        fits = False
    if not fits or not url.isprintable() or " " in url:
        raise RemoteFailed(f"{url} is not an http:// or https:// address")
    return url.rstrip("/")


Url = Annotated[
    str,
    typer.Option(
        envvar="CARILLON_URL",
        callback=_running_here,
        help="Where Carillon listens; by default the one that serves this folder's ledger, or CARILLON_HTTP__PORT.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        envvar="CARILLON_TOKEN",
        help="The token, if the server requires one; --token-file keeps it out of the process list.",
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option("--token-file", envvar="CARILLON_TOKEN_FILE", help="A file that holds the token; - reads stdin."),
]
_STDIN = "-"
_ADVICE = "is `carillon serve` running there? --url names another address"


class RemoteFailed(CarillonError):
    """The server did not answer or refused; the message says what to do."""

    status: int | None = None
    body: dict[str, Any] | None = None
    """The answer, if it was a JSON object."""

    @property
    def passing(self) -> bool:
        """Whether the same request may be answered later: nobody answers now, or too much is asked."""
        return self.status is None or self.status == TOO_MANY or self.status >= _SERVER_ERROR


def token_of(context: typer.Context, token: str | None, file: str | None) -> str | None:
    """The token of `--token` or `--token-file`; a file goes before an environment variable that holds a token."""
    source = context.get_parameter_source("token")
    as_argument = token is not None and source is not None and source.name == "COMMANDLINE"
    if as_argument and file is not None:
        raise RemoteFailed("--token and --token-file: give one of them")
    if as_argument:
        said = "--token shows the token to everybody who lists processes; use CARILLON_TOKEN or --token-file"
        typer.echo(f"warning: {said}", err=True)
    if file is not None:
        return _read(file)
    return token and _one_token(token, "--token" if as_argument else "CARILLON_TOKEN")


def bearer(token: str | None) -> dict[str, str]:
    """The header that shows a token."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def _read(file: str) -> str:
    try:
        text = sys.stdin.read() if file == _STDIN else Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RemoteFailed(f"--token-file {file}: {getattr(error, 'strerror', None) or 'not a text'}") from None
    return _one_token(text, f"--token-file {file}")


def _one_token(given: str, where: str) -> str:
    """The token without the line's end; says here what the HTTP library would refuse in words that show the token."""
    token = given.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise RemoteFailed(f"{where}: it must hold one token and nothing else")
    return token


class Remote(msgspec.Struct, frozen=True):
    """The address of a server and the token to call it with."""

    url: str
    token: str | None = None

    def get(self, path: str) -> dict[str, Any]:
        """GET a path and decode its JSON."""
        return call(f"{self.url}{path}", self._headers)

    def events(self, path: str) -> Iterator[dict[str, Any]]:
        """The data of server-sent events as they arrive; ends when the server closes the stream."""
        with _answering(self.url), _opened(f"{self.url}{path}", self._headers, None) as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    yield _document(line.removeprefix(b"data: "), self.url)

    @property
    def _headers(self) -> dict[str, str]:
        return bearer(self.token)


def call(url: str, headers: dict[str, str], body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Send one request and decode the JSON of its answer."""
    content = None if body is None else json.dumps(body).encode()
    with _answering(url), _opened(url, headers, content) as answer:
        return _document(answer.read(), url)


def status_of(url: str) -> int | None:
    """The status that a page is answered with; None where nobody answers."""
    try:
        with _answering(url), _opened(url, {}, None):
            return OK
    except RemoteFailed as error:
        return error.status


def _opened(url: str, headers: dict[str, str], content: bytes | None) -> Any:  # noqa: ANN401 - an answer to be read
    request = urllib.request.Request(url, data=content, headers=headers)  # noqa: S310 - the option was checked
    try:
        return urllib.request.urlopen(request, timeout=PATIENCE_SECONDS)  # noqa: S310 - the option was checked
    except urllib.error.HTTPError as error:
        body = _object(error)
        failed = RemoteFailed(_reason(error.code, body) + _advice(error.code, headers))
        failed.status, failed.body = error.code, body
        raise failed from None


@contextmanager
def _answering(url: str) -> Iterator[None]:
    """Say in words why there is no answer, or only the beginning of one."""
    try:
        yield
    except OSError as error:
        # urllib wraps what happened; its own words say nothing to a person.
        said = error.reason if isinstance(error, urllib.error.URLError) else error
        why = said.strerror or said if isinstance(said, OSError) else said
    except HTTPException:
        # The connection ended in the middle, or what listens there speaks no HTTP.
        why = "it ended without a whole answer"
    else:
        return
    raise RemoteFailed(f"no answer from {_server(url)}: {why}; {_ADVICE}") from None


class _Answered(dict[str, Any]):
    """A JSON object of an answer: a server that leaves out what a command reads is no Carillon, or an older one."""

    url = ""

    def __missing__(self, name: str) -> NoReturn:
        raise _stranger(self.url, f": there is no {name!r}")


def _document(text: bytes, url: str) -> dict[str, Any]:
    def read(found: dict[str, Any]) -> _Answered:
        answered = _Answered(found)
        answered.url = url
        return answered

    with suppress(ValueError):
        found = json.loads(text, object_hook=read)
        if isinstance(found, _Answered):
            return found
    raise _stranger(url)


def _stranger(url: str, why: str = "") -> RemoteFailed:
    return RemoteFailed(f"{_server(url)} does not answer as Carillon does{why}; {_ADVICE}")


def _server(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


def _object(error: urllib.error.HTTPError) -> dict[str, Any] | None:
    try:
        found = json.load(error)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _reason(status: int, body: dict[str, Any] | None) -> str:
    said = (body or {}).get("error")
    if not isinstance(said, dict) or not {"code", "message"} <= said.keys():
        # A Carillon API always answers with JSON, so this listener serves probes alone.
        none = "; it serves no API: galaxy and push-worker have none" if status == NOT_FOUND else ""
        return f"the server answered {status}{none}"
    found = [item for item in said.get("details") or [] if item.get("message") != said["message"]]
    if len(found) == 1 and str(found[0].get("field")) in said["message"]:
        # A single detail repeats the message in another order.
        found = []
    details = "; ".join(f"{item.get('field')}: {item.get('message')}" for item in found)
    return f"{said['code']}: {said['message']}" + (f" ({details})" if details else "")


def _advice(status: int, headers: dict[str, str]) -> str:
    if status != UNAUTHORIZED:
        return ""
    if "Authorization" in headers:
        return "; the one given is wrong, expired or revoked"
    return "; give one with CARILLON_TOKEN or --token-file, a JWT or an API key of `carillon keys create`"
