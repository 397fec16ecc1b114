"""The page that shows the OpenAPI document to people: our own static files, no third party, nothing inline."""

from importlib.resources import files

from carillon.web.declare import Endpoint
from carillon.web.fixed import fixed

_PAGES = {
    "/docs": "index.html",
    "/docs/style.css": "style.css",
    "/docs/schema.js": "schema.js",
    "/docs/docs.js": "docs.js",
}


def pages(openapi: bytes) -> list[Endpoint]:
    """The document, for those who may call the API, and the page's files, which tell nothing, for everybody."""
    folder = files("carillon.web").joinpath("static")
    found = [fixed("/openapi.json", openapi, "json", guarded=True)]
    return found + [
        fixed(path, folder.joinpath(name).read_bytes(), name.rpartition(".")[2]) for path, name in _PAGES.items()
    ]
