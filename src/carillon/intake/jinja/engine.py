"""Compiles and renders jinja sources with minijinja, within limits and with the place of every error."""

import hashlib
import re
import secrets
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any, NamedTuple

import minijinja

from carillon.domain.errors import BadIntent, BadTemplate, CarillonError, Place
from carillon.domain.notifications import ComposedPart
from carillon.intake.jinja.budget import (
    CURRENT,
    MOST_OUTPUT,
    Budget,
    DataReader,
    Exceeded,
    Fields,
    FlatFields,
    MissingValue,
    TooHeavy,
    emitted,
    merged,
)
from carillon.intake.jinja.filters import FILTERS, GLOBALS
from carillon.intake.jinja.formats import Unformattable
from carillon.intake.jinja.guard import FUNCTIONS, can_link, chunks, guard, macros_in
from carillon.intake.jinja.mail import tidied
from carillon.intake.jinja.scan import Piece, Tag
from carillon.intake.markup import Spot, spots

FUEL = 100_000
"""Steps of the engine in one part; a table of a thousand rows with ten cells takes half of them."""
_QUICK_FUEL = 10_000
_QUICK_DATA = 8192
_KEPT = 4096
_PATH = re.compile(r"\{\{\s*+[A-Za-z_]\w*+(?>(?:\.\w++)*)\s*+\}\}")
_USED = re.compile(r"[^\W\d]\w*+(?>(?:\.\w++)*)")
_INNER = re.compile(r" \(in [0-9a-f]+\.(?:html|text):\d+\)")
"""The name by which only the engine knows a part."""
_NAMED = re.compile(r"`([^`]{1,200})`")
_REACHES = frozenset({"methods"})
_REFUSALS = (minijinja.TemplateError, CarillonError, AttributeError, TypeError, ValueError, ArithmeticError)
"""What a render raises that can be repeated."""
_OURS = frozenset(name for name in GLOBALS) | FUNCTIONS | {"loop"}


class _Engine:
    """One environment of the engine, and the sources that it has compiled."""

    def __init__(self, *, strict: bool, counts: bool, fuel: int) -> None:
        self._names: set[str] = set()
        self.environment = minijinja.Environment(
            filters=FILTERS,
            globals=GLOBALS,
            fuel=fuel,
            undefined_behavior="strict" if strict else "chainable",
            auto_escape_callback=_escaping,
            finalizer=emitted if counts else None,
            pycompat=False,
        )

    def render(self, part: ComposedPart, context: Mapping[str, Any]) -> str:
        if part.name not in self._names:
            self._add(part)
        return self.environment.render_template(part.name, **context)

    def _add(self, part: ComposedPart) -> None:
        if len(self._names) >= _KEPT:
            self.environment.clear_templates()
            self._names.clear()
        self.environment.add_template(part.name, part.source)
        self._names.add(part.name)


def _escaping(name: str | None) -> str | None:
    return "html" if name is not None and name.endswith(".html") else None


class _Engines(threading.local):
    """The engines of a thread: an engine that renders in one of them must not be asked by another."""

    def __init__(self) -> None:
        self._made: dict[tuple[bool, bool, int], _Engine] = {}

    def get(self, *, strict: bool, counts: bool, fuel: int) -> _Engine:
        found = self._made.get((strict, counts, fuel))
        if found is None:
            found = self._made[strict, counts, fuel] = _Engine(strict=strict, counts=counts, fuel=fuel)
        return found


_ENGINES = _Engines()


def _engine(*, strict: bool, counts: bool = True, quick: bool = False) -> _Engine:
    return _ENGINES.get(strict=strict, counts=counts, fuel=_QUICK_FUEL if quick else FUEL)


def compiled(pieces: Sequence[Piece], *, escapes: bool, tidies: bool = False) -> ComposedPart:
    """The part that the engine gets; raises BadTemplate with the place of what does not compile."""
    macros = macros_in(pieces)
    out: list[str] = []
    starts: list[int] = []
    tags: list[Tag] = []
    length, grows = 0, False
    reads: set[str] = set()
    where: Iterable[Spot] = _spots(pieces) if escapes else repeat("free")
    for piece, spot in zip(pieces, where, strict=False):
        if isinstance(piece, Tag):
            guarded = guard(piece, macros, spot)
            grows = grows or guarded.grows
            reads |= guarded.reads
            starts.append(length)
            tags.append(piece)
            text = guarded.text
        else:
            text = chunks(piece)
        out.append(text)
        length += len(text)
    source = "".join(out)
    part = ComposedPart(
        source=source,
        name=f"{hashlib.blake2b(source.encode('utf-8', 'surrogatepass')).hexdigest()}.{'html' if escapes else 'text'}",
        starts=tuple(starts),
        places=tuple(tag.place for tag in tags),
        tags=tuple(tag.text for tag in tags),
        grows=grows,
        reads=frozenset(reads),
        links=escapes and can_link(pieces),
        escapes=escapes,
        tidies=tidies,
    )
    _check(part)
    return part


def _spots(pieces: Sequence[Piece]) -> list[Spot]:
    shown = [_raw(piece) if isinstance(piece, Tag) and piece.kind == "raw" else piece for piece in pieces]
    return spots(shown, lambda piece: _word(piece) if isinstance(piece, Tag) else None)


def _raw(tag: Tag) -> str:
    """What a raw block writes; a comment writes nothing."""
    return "" if tag.text.startswith("{#") else tag.text[tag.text.index("%}") + 2 : tag.text.rindex("{%")]


def _word(tag: Tag) -> str:
    """Empty for what writes a value."""
    return "" if tag.word == "call" else tag.word


def _check(part: ComposedPart) -> None:
    try:
        _engine(strict=True).environment.undeclared_variables_in_str(part.source)
    except minijinja.TemplateError as error:
        raise BadTemplate(_said(error), place=_place(part, error)) from None
    except BaseException as error:  # noqa: BLE001 - the engine's panic is no Exception
        raise _panic(error) from None


def variables(part: ComposedPart) -> list[str]:
    """The variables that a part uses, in the order of their first use."""
    found = _engine(strict=True).environment.undeclared_variables_in_str(part.source, nested=True)
    # The engine tells the names without their order; a name that no tag says in one piece stands where its root does.
    order: dict[str, int] = {}
    for tag in part.tags:
        for used in _USED.findall(tag):
            order.setdefault(used, len(order))
            order.setdefault(used.partition(".")[0], len(order))
    names = sorted(name for name in found if name.partition(".")[0] not in _OURS)
    return sorted(names, key=lambda name: order.get(name, order.get(name.partition(".")[0], len(order))))


class Data(NamedTuple):
    """Data as templates see them."""

    context: Mapping[str, Any]
    small: bool
    """So small that no step of the engine can make much of them."""


def read_data(defaults: Mapping[str, Any], data: Mapping[str, Any], reads: frozenset[str] = _REACHES) -> Data:
    """For a template that reads data so; raises BadIntent for data that no message can hold."""
    reader = DataReader()
    given = merged(defaults, data) if defaults else data
    try:
        context = None if "methods" in reads else reader.plain(given)
        if context is None:
            context = reader.read(given, FlatFields if "items" in reads and "pairs" not in reads else Fields)
    except Exceeded as error:
        raise BadIntent("TEMPLATE_RENDER_ERROR", str(error), field="data") from None
    return Data(context, reader.length + 16 * reader.values <= _QUICK_DATA)


def render(part: ComposedPart, data: Data, budget: Budget) -> str:
    """Raises BadIntent with the place of the tag that failed."""
    token = CURRENT.set(budget)
    try:
        text = _rendered(part, data, budget)
    except minijinja.TemplateError as error:
        raise _refusal(part, error, data) from None
    except TooHeavy:
        raise
    except CarillonError as error:
        raise _failed(part, data, budget, error) from None
    except AttributeError as error:
        raise _failed(part, data, budget, Unformattable(f"there is no function {str(error)[:40]!r}")) from None
    except (TypeError, ValueError, ArithmeticError) as error:
        raise _failed(part, data, budget, Unformattable(f"this cannot be rendered: {str(error)[:80]}")) from None
    except BaseException as error:  # noqa: BLE001 - the engine's panic is no Exception
        raise _panic(error) from None
    finally:
        CURRENT.reset(token)
    if len(text) > MOST_OUTPUT:
        raise BadIntent("TEMPLATE_RENDER_ERROR", f"the rendered message exceeds {MOST_OUTPUT} characters", field="data")
    if part.tidies:
        return tidied(text)
    # The engine writes a slash as an entity, which no reader of HTML needs and which makes links unreadable.
    return text.replace("&#x2f;", "/") if part.escapes else text


def _rendered(part: ComposedPart, data: Data, budget: Budget) -> str:
    try:
        if data.small and not part.grows:
            return _engine(strict=budget.strict, counts=False, quick=True).render(part, data.context)
        if budget.quick:
            return _engine(strict=budget.strict, quick=True).render(part, data.context)
    except minijinja.TemplateError as error:
        if error.kind != "OutOfFuel":
            raise
        if budget.quick:
            raise TooHeavy from None
    return _engine(strict=budget.strict).render(part, data.context)


def _refusal(part: ComposedPart, error: minijinja.TemplateError, data: Data) -> BadIntent:
    said, place = _said(error), _place(part, error)
    if error.kind == "UndefinedError":
        # Without statements every tag is rendered, and all that is missing can be named at once.
        plain = not any(tag.startswith("{%") for tag in part.tags)
        tags = part.tags if plain else tuple(tag for tag, at in zip(part.tags, part.places, strict=True) if at == place)
        paths = sorted({tag[2:-2].strip() for tag in tags if _PATH.fullmatch(tag)})
        lacking = [path for path in paths if not _has(data.context, path)]
        said = f"missing template variables: {', '.join(lacking)}" if lacking else said
    return BadIntent("TEMPLATE_RENDER_ERROR", said, field="data", place=place)


def _said(error: minijinja.TemplateError) -> str:
    detail = error.detail or ""
    match error.kind:
        case "UndefinedError":
            named = _NAMED.search(detail)
            return f"missing template variables: {named.group(1) if named else detail}"
        case "OutOfFuel":
            return f"the template takes more than {FUEL} steps"
        case "SyntaxError":
            return f"the template does not compile: {detail}"
        case _:
            return detail or _INNER.sub("", error.message)


def _place(part: ComposedPart, error: minijinja.TemplateError) -> Place | None:
    """Where the template says the tag of an error."""
    if not part.places:
        return None
    at = None
    if error.range is not None:
        # The engine counts bytes.
        at = len(part.source.encode()[: error.range[0]].decode(errors="ignore"))
    elif error.line is not None:
        at = sum(len(line) for line in part.source.splitlines(keepends=True)[: error.line - 1])
    if at is None:
        return None
    return part.places[max(0, bisect_right(part.starts, at) - 1)]


def _failed(part: ComposedPart, data: Data, budget: Budget, error: CarillonError) -> BadIntent:
    """A function of ours has refused; the same render with a mark before each tag says at which one."""
    again = Budget(budget.person, budget.messages, strict=budget.strict)
    token = CURRENT.set(again)
    try:
        marked = _marked(part)
        environment = _engine(strict=budget.strict).environment
        environment.render_str(marked, "marked.html" if part.escapes else "marked.text", **data.context)
    except _REFUSALS:
        pass
    finally:
        CURRENT.reset(token)
    place = part.places[again.at] if 0 <= again.at < len(part.places) else None
    said = str(error)
    if isinstance(error, MissingValue) and place is not None:
        said = f"missing template variables: {_missing(part.tags[again.at], data)}"
    return BadIntent("TEMPLATE_RENDER_ERROR", said, field="data", place=place)


def _marked(part: ComposedPart) -> str:
    ends = [*part.starts[1:], len(part.source)]
    first = part.source[: part.starts[0]] if part.starts else part.source
    spans = zip(part.starts, ends, strict=True)
    return first + "".join(f"{{{{ _at({at}) }}}}{part.source[one:other]}" for at, (one, other) in enumerate(spans))


def place_in(part: ComposedPart, data: Data, budget: Budget, find: Callable[[str], int]) -> Place | None:
    """Where the template says the value that stands at the found character of the rendered text; None for 0."""
    mark = f"\x01{secrets.token_hex(8)}\x01"
    ends = [*part.starts[1:], len(part.source)]
    out = [part.source[: part.starts[0]]] if part.starts else []
    for at, (one, other) in enumerate(zip(part.starts, ends, strict=True)):
        text = part.source[one:other]
        out.append(f"{mark}{at}{mark}{text}" if text.startswith("{{") else text)
    token = CURRENT.set(Budget(budget.person, budget.messages, strict=budget.strict))
    try:
        name = "marked.html" if part.escapes else "marked.text"
        text = _engine(strict=budget.strict).environment.render_str("".join(out), name, **data.context)
    except _REFUSALS:
        return None
    finally:
        CURRENT.reset(token)
    first, *pieces = text.replace("&#x2f;", "/").split(mark)
    begins = list(accumulate(map(len, pieces[1::2]), initial=len(first)))[:-1]
    at = find("".join((first, *pieces[1::2])))
    found = bisect_right(begins, at) - 1
    return part.places[int(pieces[0::2][found])] if at > 0 and found >= 0 else None


def _missing(tag: str, data: Data) -> str:
    """The variables of a tag that the data lack; the whole tag if they all have a value."""
    try:
        inside = tag.strip("{}%-+ ")
        inside = inside if tag.startswith("{{") else inside.partition(" in ")[2] or inside.partition(" ")[2]
        named = _engine(strict=True).environment.undeclared_variables_in_str(f"{{{{ {inside} }}}}", nested=True)
    except minijinja.TemplateError:
        return tag[:64]
    lacking = [name for name in sorted(named) if name.partition(".")[0] not in _OURS and not _has(data.context, name)]
    return ", ".join(lacking) or tag[:64]


def _has(context: Mapping[str, Any], path: str) -> bool:
    found: Any = context
    for name in path.split("."):
        found = dict.get(found, name) if isinstance(found, dict) else None
    return found is not None


def _panic(error: BaseException) -> BaseException:
    """The engine's own failure as a refusal; everything else stays what it is."""
    if type(error).__name__ == "PanicException":
        return BadTemplate("the template engine cannot take this template")
    return error
