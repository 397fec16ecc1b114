"""Makes attachments of files and URLs."""

import base64
import mimetypes
from os import PathLike
from pathlib import Path
from urllib.parse import unquote, urlsplit

from carillon.domain.content.mail import Attachment

UNKNOWN = "application/octet-stream"


def attachment(source: str | PathLike[str], *, content_type: str | None = None, inline: bool = False) -> Attachment:
    """An attachment of a file, whose bytes go with the request, or of an http(s) URL, which Carillon fetches.

    The type is guessed from the name where none is given; `inline` shows it where the HTML says `cid:<filename>`.
    """
    text = str(source)
    if text.startswith(("http://", "https://")):
        name = unquote(urlsplit(text).path.rpartition("/")[2]) or "attachment"
        return Attachment(filename=name, content_type=_type(name, content_type), url=text, inline=inline)
    path = Path(source)
    content = base64.b64encode(path.read_bytes()).decode()
    return Attachment(filename=path.name, content_type=_type(path.name, content_type), content=content, inline=inline)


def _type(name: str, given: str | None) -> str:
    return given or mimetypes.guess_type(name)[0] or UNKNOWN
