"""The console's modules in one file, and its style sheets in another: a browser fetches two files and not fifty.

The files are written by hand and served as they are, too; nothing is compiled. Each module becomes a function under
its path that returns its exports. It runs when somebody imports it for the first time, as a module does, so that a page
that nobody opens costs nothing. The modules keep to what is joined here: an import names what it wants, and an `export`
stands before a function, a class or a constant.
"""

import posixpath
import re
from collections.abc import Mapping

from carillon.domain.errors import ConfigurationError

ENTRY = "app.js"
SHEETS = "console.css"
_IMPORT = re.compile(r'^import (\* as )?([^*"]+?) from "([^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_LATER = re.compile(r"\bimport\(")
_LEFT = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)
_SHEET = re.compile(r'^@import "([^"]+)";$', re.MULTILINE)
_BEGIN = """const $made = new Map();
const $modules = new Map();
const $take = (path) => {
  if (!$made.has(path)) $made.set(path, $modules.get(path)());
  return $made.get(path);
};
// A page of a part that is not ours is a file of its own.
const $bring = async (path) => $modules.has(path.slice(2)) ? $take(path.slice(2)) : import(`/console/${path.slice(2)}`);
"""


class NotJoined(ConfigurationError):
    """A file of the console is written in a way that cannot be joined."""


def script(files: Mapping[str, bytes]) -> bytes:
    """One module that runs `app.js`; `files` are the modules by their paths in the console's folder."""
    parts = [_module(path, text.decode(), files) for path, text in files.items()]
    return "".join([_BEGIN, *parts, f'$take("{ENTRY}");\n']).encode()


def style(files: Mapping[str, bytes]) -> bytes:
    """The style sheets that `console.css` imports, in its order."""

    def content(found: re.Match[str]) -> str:
        return f"/* {found[1]} */\n{files[found[1]].decode().strip()}\n"

    return _SHEET.sub(content, files[SHEETS].decode()).encode()


def _module(path: str, text: str, files: Mapping[str, bytes]) -> str:
    names: list[str] = []

    def taken(found: re.Match[str]) -> str:
        whole, what, where = found[1], found[2], posixpath.normpath(f"{posixpath.dirname(path)}/{found[3]}".lstrip("/"))
        if where not in files:
            raise NotJoined(f"console: {path} imports {where}, which is not there")
        bound = what if whole else what.replace(" as ", ": ")
        return f'const {bound} = $take("{where}");'

    def exported(found: re.Match[str]) -> str:
        names.append(found[1])
        return ""

    body = _LATER.sub("$bring(", _EXPORT.sub(exported, _IMPORT.sub(taken, text)))
    if left := _LEFT.search(body):
        raise NotJoined(f"console: {path} has {left[0]!r}: import by names, and export before what is named")
    return f'$modules.set("{path}", () => {{\n{body.rstrip()}\nreturn {{ {", ".join(names)} }};\n}});\n'
