"""Files over HTTP: each is packed and tagged, so that a browser fetches it once and then asks whether it changed."""

import gzip
import hashlib
from collections.abc import Callable
from functools import cache
from importlib.resources import files

import msgspec

from carillon.web.about import EVERYBODY, KNOWN
from carillon.web.endpoint import Answer, Endpoint
from carillon.web.request import Reply, Request

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FRAMED = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""The policy of a page that shows the HTML of a message: it has styles of its own, and runs and fetches nothing."""
KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
}
"""Media types by file extension; files of other kinds are not served."""
_DOCS = {
    "/docs": "index.html",
    "/docs/style.css": "style.css",
    "/docs/schema.js": "schema.js",
    "/docs/docs.js": "docs.js",
}
_WORTH_PACKING = 1024
"""A smaller file fits into one packet as it is."""
_REFUSED = frozenset({"q=0", "q=0.0", "q=0.00", "q=0.000"})


class _Content(msgspec.Struct, frozen=True):
    """One form of a file, plain or packed; each has a tag of its own, because the bytes differ."""

    body: bytes
    headers: dict[str, str]

    def reply(self, request: Request, media_type: str) -> Reply:
        known = request.header(b"if-none-match") or ""
        tags = {tag.strip().removeprefix("W/") for tag in known.split(",")}
        if self.headers["ETag"] in tags:
            return Reply(304, b"", self.headers, media_type)
        return Reply(200, self.body, self.headers, media_type)


def fixed(
    path: str, content: bytes | Callable[[], bytes], kind: str, *, guarded: bool = False, policy: str = POLICY
) -> Endpoint:
    """One file under one path, of a kind in KINDS; a function makes the content when the first caller asks."""
    media_type = KINDS[kind]

    @cache
    def forms() -> tuple[_Content, _Content]:
        return _forms(content if isinstance(content, bytes) else content(), policy)

    async def call(request: Request) -> Reply:
        plain, packed = forms()
        accepts = _takes_gzip(request.header(b"accept-encoding") or "")
        return (packed if accepts else plain).reply(request, media_type)

    return Endpoint(
        method="GET",
        path=path,
        call=call,
        name=f"get{path.replace('/', '-').replace('.', '-')}",
        summary=path,
        answers=(
            Answer(status=200, description="The file", media_type=media_type),
            Answer(status=304, description="The caller has it already"),
        ),
        about=KNOWN if guarded else EVERYBODY,
        by_address=True,
        hidden=True,
    )


def _takes_gzip(accepted: str) -> bool:
    codings = (one.partition(";") for one in accepted.lower().split(","))
    return any(name.strip() == "gzip" and weight.strip() not in _REFUSED for name, _, weight in codings)


def _forms(text: bytes, policy: str) -> tuple[_Content, _Content]:
    # `no-cache` lets the browser keep the file and makes it ask: after an upgrade nobody sees the old console.
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    tag = hashlib.sha256(text).hexdigest()[:24]
    plain = _Content(text, {**headers, "ETag": f'"{tag}"'})
    if len(text) < _WORTH_PACKING:
        return plain, plain
    packed = gzip.compress(text, mtime=0)
    return plain, _Content(packed, {**headers, "ETag": f'"{tag}-gz"', "Content-Encoding": "gzip"})


def pages(openapi: Callable[[], bytes]) -> list[Endpoint]:
    """The OpenAPI document for callers of the API, and the page that shows it, without data, for everybody."""
    folder = files(__package__).joinpath("static")
    document = fixed("/openapi.json", openapi, "json", guarded=True)
    return [document] + [
        fixed(path, folder.joinpath(name).read_bytes(), name.rpartition(".")[2]) for path, name in _DOCS.items()
    ]
