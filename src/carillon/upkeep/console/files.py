"""The console's own files: no build step, no third party, nothing inline."""

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from carillon.web import EVERYBODY, Answer, Endpoint, Reply, Request
from carillon.web.fixed import KINDS, fixed

_FOLDER = "static"


def endpoints() -> list[Endpoint]:
    """Every file of the folder under /console; they tell nothing, so everybody may have them."""
    found = [_front_door()]
    for path, file in _walk(files("carillon.upkeep.console").joinpath(_FOLDER), "/console"):
        kind = file.name.rpartition(".")[2]
        if kind in KINDS:
            found.append(fixed(path, file.read_bytes(), kind))
            if file.name == "index.html":
                found.append(fixed("/console", file.read_bytes(), kind))
    return found


def _front_door() -> Endpoint:
    """Whoever clicks on the bare address has a look in mind, not a call."""

    async def call(_: Request) -> Reply:
        return Reply(307, b"", {"Location": "/console"})

    return Endpoint(
        method="GET",
        path="/",
        call=call,
        name="frontDoor",
        summary="To the console",
        answers=(Answer(status=307, description="To the console"),),
        about=EVERYBODY,
        by_address=True,
        hidden=True,
    )


def _walk(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _walk(entry, f"{path}/{entry.name}")
        else:
            yield f"{path}/{entry.name}", entry
