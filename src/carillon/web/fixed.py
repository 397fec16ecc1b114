"""Static files of the program, served under a strict policy: nothing inline, nothing from a third party."""

from importlib.resources import files

from carillon.web.about import EVERYBODY, KNOWN
from carillon.web.declare import Answer, Endpoint
from carillon.web.request import Reply, Request

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
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


def fixed(path: str, content: bytes, kind: str, *, guarded: bool = False) -> Endpoint:
    """One file under one path, of a kind in KINDS; open to everybody unless it is guarded."""
    media_type = KINDS[kind]
    reply = Reply(200, content, {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}, media_type)

    async def call(_: Request) -> Reply:
        return reply

    return Endpoint(
        method="GET",
        path=path,
        call=call,
        name=f"get{path.replace('/', '-').replace('.', '-')}",
        summary=path,
        answers=(Answer(status=200, description="The file", media_type=media_type),),
        about=KNOWN if guarded else EVERYBODY,
        by_address=True,
        hidden=True,
    )


def pages(openapi: bytes) -> list[Endpoint]:
    """The OpenAPI document for callers of the API, and the page that shows it, without data, for everybody."""
    folder = files(__package__).joinpath("static")
    document = fixed("/openapi.json", openapi, "json", guarded=True)
    return [document] + [
        fixed(path, folder.joinpath(name).read_bytes(), name.rpartition(".")[2]) for path, name in _DOCS.items()
    ]
