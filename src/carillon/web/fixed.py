"""Files of ours that are served as they are: nothing inline, nothing from elsewhere, nothing told."""

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
"""Media types by the end of a file's name; other files are not served."""


def fixed(path: str, content: bytes, kind: str, *, guarded: bool = False) -> Endpoint:
    """One file under one path, of a kind in KINDS; for everybody unless it is guarded."""
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
        guarded=guarded,
        by_address=True,
        hidden=True,
    )
