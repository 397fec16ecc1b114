"""What each field of the OpenAPI document means: its own description, its docstring, or the sentence of its name.

A name that many types share means the same in all of them, so its sentence stands once, in `fields.toml`. A type that
means something else by the name says so under the field.
"""

import ast
import inspect
import sys
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any, get_args

import msgspec


def describe(components: Mapping[str, Any], kinds: Iterable[object]) -> None:
    """Fill in the description of every property that has none."""
    types = _structs(kinds)
    for name, schema in components.items():
        kind = types.get(name)
        own = _docstrings(kind) if kind is not None else {}
        for field, inner in schema.get("properties", {}).items():
            found = inner.get("description") or own.get(field) or _of_a_choice(inner) or sentence(field)
            if found is not None:
                inner["description"] = found


@cache
def sentences() -> Mapping[str, str]:
    """Every shared name with its sentence."""
    read: dict[str, str] = tomllib.loads(files(__package__).joinpath("fields.toml").read_text())
    return read


def sentence(name: str) -> str | None:
    """The sentence of a name, in either spelling: `userId` and `user_id` are one name."""
    first, *rest = name.split("_")
    return sentences().get(first + "".join(part.capitalize() for part in rest))


def _of_a_choice(inner: Mapping[str, Any]) -> str | None:
    """A value or nothing: the value's description is the field's."""
    found = [choice["description"] for choice in inner.get("anyOf", ()) if "description" in choice]
    return found[0] if len(found) == 1 else None


def _structs(kinds: Iterable[object]) -> dict[str, type]:
    """Every struct that the wire types hold, by its name."""
    found: dict[str, type] = {}
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind.__name__ in found:
                continue
            found[kind.__name__] = kind
            waiting += [field.type for field in msgspec.structs.fields(kind)]
        waiting += get_args(kind)
    return found


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """The sentences under the fields of a struct and of those that it inherits from, by their names on the wire."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not issubclass(each, msgspec.Struct) or each is msgspec.Struct:
            continue
        for name, text in _written(each).items():
            if name in names:
                found[names[name]] = text
    return found


def _written(kind: type) -> dict[str, str]:
    return _written_in(kind.__module__).get(kind.__qualname__, {})


@cache
def _written_in(module: str) -> dict[str, dict[str, str]]:
    """What a module says under the fields of its classes; read once, because parsing takes most of the time."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, SyntaxError, TypeError):
        return {}  # A package without its sources has the sentences of names alone.
    return {made.name: _sentences_under(made) for made in tree.body if isinstance(made, ast.ClassDef)}


def _sentences_under(made: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, after in pairwise(made.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            text = after.value.value if isinstance(after.value, ast.Constant) else None
            if isinstance(text, str):
                found[field.target.id] = " ".join(text.split())
    return found
