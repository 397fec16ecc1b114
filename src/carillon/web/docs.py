"""The page that shows the OpenAPI document to people: our own static files, no third party, nothing inline."""

from importlib.resources import files

from carillon.web.declare import Answer, Endpoint
from carillon.web.request import Reply, Request

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGES = (
    ("/docs", "index.html", "text/html; charset=utf-8"),
    ("/docs/style.css", "style.css", "text/css; charset=utf-8"),
    ("/docs/schema.js", "schema.js", "text/javascript; charset=utf-8"),
    ("/docs/docs.js", "docs.js", "text/javascript; charset=utf-8"),
)


def pages(openapi: bytes) -> list[Endpoint]:
    """The document, for those who may call the API, and the page's files, which tell nothing, for everybody."""
    folder = files("carillon.web").joinpath("static")
    found = [_fixed("/openapi.json", openapi, "application/json", guarded=True)]
    found += [_fixed(path, folder.joinpath(name).read_bytes(), media_type) for path, name, media_type in _PAGES]
    return found


def _fixed(path: str, content: bytes, media_type: str, *, guarded: bool = False) -> Endpoint:
    reply = Reply(200, content, {"Content-Security-Policy": _PAGE_POLICY, "Cache-Control": "no-cache"}, media_type)

    async def call(_: Request) -> Reply:
        return reply

    return Endpoint(
        method="GET",
        path=path,
        call=call,
        name=f"get{path.replace('/', '-')}",
        summary=path,
        answers=(Answer(status=200, description="The file", media_type=media_type),),
        guarded=guarded,
        hidden=True,
    )
