"""The inbox component for pages of others, and a page of ours that shows it."""

from importlib.resources import files

from carillon.web import Endpoint
from carillon.web.fixed import fixed

_FILES = {
    "/inbox": "inbox.html",
    "/inbox/inbox.js": "inbox.js",
    "/inbox/page.js": "page.js",
    "/inbox/page.css": "page.css",
    "/inbox/icon.svg": "icon.svg",
}


def endpoints() -> list[Endpoint]:
    """The files; they tell nothing, so everybody may have them."""
    folder = files("carillon.live").joinpath("static")
    return [fixed(path, folder.joinpath(name).read_bytes(), name.rpartition(".")[2]) for path, name in _FILES.items()]
