"""Every regular expression of the package, found in its source, and hostile texts made from each expression."""

import ast
import importlib
import re
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.sources import tree_of

with warnings.catch_warnings():
    # The parser of `re` has no public name.
    warnings.simplefilter("ignore", DeprecationWarning)
    import sre_constants as sre
    import sre_parse

FUNCTIONS = frozenset({"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})
METHODS = FUNCTIONS - {"compile"}
_SHORT, _TRIED_LONG, _SURELY_SHORT, _SURELY_LONG = 1000, 5, 0.02, 0.3


class Place(NamedTuple):
    """Where an expression stands in the source."""

    name: str
    """`providers.http._TOKEN`, or `providers.mail.slug/1`: the first expression inside that function."""
    module: str
    expression: ast.expr
    flags: ast.expr | None
    methods: frozenset[str]
    """How the expression is used: a search may take quadratic time where a full match does not."""
    of_a_field: bool = False
    """msgspec refuses a value that does not match."""


def places(package: str, folder: Path) -> list[Place]:
    """Every expression of a package: calls of `re`, and msgspec's `Meta(pattern=…)`."""
    trees = {_module(package, folder, path): tree_of(path) for path in sorted(folder.rglob("*.py"))}
    nodes = {module: list(ast.walk(tree)) for module, tree in trees.items()}
    used = {module: _methods(found) for module, found in nodes.items()}
    for module, found in nodes.items():
        for node in found:
            if isinstance(node, ast.ImportFrom) and node.module in used:
                for name in {each.name for each in node.names} & used[module].keys():
                    used[node.module].setdefault(name, set()).update(used[module][name])
    return [place for module, tree in trees.items() for place in _places(package, module, tree, used[module])]


def _module(package: str, folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join((package, *(part for part in parts if part != "__init__")))


def _methods(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """For each variable, the methods of patterns that the module calls on it."""
    found: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, set()).add(node.attr)
    return found


def _places(package: str, module: str, tree: ast.Module, used: dict[str, set[str]]) -> Iterator[Place]:
    numbers: dict[str, int] = {}
    for holder, function, node in _calls(tree):
        asked = _asked(node)
        if asked is None:
            continue
        method, expression, flags = asked
        where = f"{module.removeprefix(f'{package}.')}.{holder}"
        numbers[where] = numbers.get(where, 0) + 1
        # A variable is one expression; a function may have several.
        name = f"{where}/{numbers[where]}" if function else where
        methods = used.get(holder) or {"search", "fullmatch"} if method == "compile" else {method or "search"}
        yield Place(name, module, expression, flags, frozenset(methods), of_a_field=not method)


def _calls(tree: ast.Module) -> Iterator[tuple[str, bool, ast.Call]]:
    """Calls with the variable or the function that they stand in; True means a function."""
    for statement in tree.body:
        for holder, node in _held(statement, ""):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call):
                    yield holder, isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef), inner


def _held(node: ast.stmt, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.ClassDef(name=name, body=body):
            for inner in body:
                yield from _held(inner, f"{prefix}{name}.")
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield f"{prefix}{name}", node
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            yield f"{prefix}{name}", node
        case _:
            yield f"{prefix}line", node


def _asked(call: ast.Call) -> tuple[str, ast.expr, ast.expr | None] | None:
    match call.func:
        case ast.Attribute(value=ast.Name(id="re"), attr=attr) if attr in FUNCTIONS:
            at = 1 if attr == "compile" else None
            flags = next((each.value for each in call.keywords if each.arg == "flags"), None)
            if flags is None and at is not None and len(call.args) > at:
                flags = call.args[at]
            return attr, call.args[0], flags
        case ast.Attribute(attr="Meta") | ast.Name(id="Meta"):
            pattern = next((each.value for each in call.keywords if each.arg == "pattern"), None)
            return None if pattern is None else ("", pattern, None)
        case _:
            return None


def compiled(place: Place) -> "re.Pattern[Any]":
    """The expression as the module compiles it; raises NameError where it is made of a function's variables."""
    module = importlib.import_module(place.module)
    flags = 0 if place.flags is None else _value(place.flags, vars(module))
    return re.compile(_value(place.expression, vars(module)), flags)


def _value(expression: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(expression), "<source>", "eval"), names)  # noqa: S307 - our own source


def run(pattern: "re.Pattern[Any]", method: str, text: str | bytes) -> None:
    """Use the expression as the source does."""
    match method:
        case "sub" | "subn":
            pattern.sub("" if isinstance(text, str) else b"", text)
        case "finditer":
            for _ in pattern.finditer(text):
                pass
        case _:
            getattr(pattern, method)(text)


def seconds(pattern: "re.Pattern[Any]", method: str, text: str | bytes) -> float:
    """The processor time of one use, the best of three where it is long: the machine has other work."""
    best = 1e9
    for _ in range(3):
        began = time.process_time()
        run(pattern, method, text)
        best = min(best, time.process_time() - began)
        if not _SURELY_SHORT < best < _SURELY_LONG:
            break
    return best


def slowest(pattern: "re.Pattern[Any]", methods: Iterable[str], longest: int) -> tuple[float, str]:
    """The longest time that a hostile text of this size takes, and which text that is."""
    short = min(longest, _SHORT)
    texts = list(hostile(pattern))
    worst, said = 0.0, ""
    for method in methods:
        # What is slow for its size shows in a short text already.
        ranked = sorted(texts, key=lambda each: seconds(pattern, method, each.of(short)), reverse=True)
        for each in ranked[:_TRIED_LONG]:
            text = each.of(longest)
            took = seconds(pattern, method, text)
            if took > worst:
                worst, said = took, f"{method}({text[:20]!r}…{text[-4:]!r})"
            if worst > _SURELY_LONG:
                return worst, said
    return worst, said


class Hostile(NamedTuple):
    """A text of any size: what the expression repeats, repeated, after one of its beginnings and before a wrong end."""

    begin: str
    unit: str
    end: str
    is_text: bool

    def of(self, longest: int) -> str | bytes:
        text = self.begin + self.unit * max(1, (longest - len(self.begin) - len(self.end)) // len(self.unit)) + self.end
        return text if self.is_text else text.encode("latin-1", "replace")


def hostile(pattern: "re.Pattern[Any]") -> Iterator[Hostile]:
    """Texts that may take the expression long."""
    words = _words(pattern)
    letters = [word for word in words if len(word) == 1][:6]
    units = [*words[:14], *(one + two for one in letters[:4] for two in letters[:4] if one != two)]
    for unit in dict.fromkeys(units):
        for begin in ("", *[word for word in words if len(word) > 1][:2]):
            for end in ("", "\x01", "!"):
                yield Hostile(begin, unit, end, isinstance(pattern.pattern, str))


def _words(pattern: "re.Pattern[Any]") -> list[str]:
    """Literal runs and one member of each class of the expression, in the order of the expression."""
    source = pattern.pattern
    found: list[str] = []
    _collect(
        sre_parse.parse(source, pattern.flags & ~re.UNICODE if isinstance(source, bytes) else pattern.flags), found
    )
    letters = [char for word in found for char in word]
    return list(dict.fromkeys([*found, *letters, "a", " ", "0"]))


def _collect(parsed: Any, found: list[str]) -> None:
    run_of = ""
    for code, value in [*parsed, (None, None)]:
        if code is sre.LITERAL:
            run_of += chr(value)
            continue
        if run_of:
            found.append(run_of)
            run_of = ""
        if code is sre.IN:
            found.extend(_members(value))
        elif code in {sre.ANY, sre.NOT_LITERAL}:
            found.append("x")
        for inner in _inside(code, value):
            _collect(inner, found)


def _inside(code: Any, value: Any) -> list[Any]:
    """The expressions inside one."""
    match code:
        case sre.MAX_REPEAT | sre.MIN_REPEAT | sre.POSSESSIVE_REPEAT:
            return [value[2]]
        case sre.SUBPATTERN:
            return [value[-1]]
        case sre.ATOMIC_GROUP:
            return [value]
        case sre.BRANCH:
            return list(value[1])
        case sre.ASSERT | sre.ASSERT_NOT:
            return [value[1]]
        case _:
            return []


def _members(value: Any) -> list[str]:
    if any(code is sre.NEGATE for code, _ in value):
        outside = re.compile(f"[^{re.escape(''.join(_plain(value)))}]")
        return [char for char in "a0 -./" if outside.match(char)][:1]
    return _plain(value)[:2]


def _plain(value: Any) -> list[str]:
    found: list[str] = []
    for code, arg in value:
        if code is sre.LITERAL:
            found.append(chr(arg))
        elif code is sre.RANGE:
            found.append(chr(arg[0]))
        elif code is sre.CATEGORY:
            found.append({sre.CATEGORY_DIGIT: "0", sre.CATEGORY_SPACE: " "}.get(arg, "a"))
    return found
