"""Says which protocols of the package have fewer than two implementors, test doubles counted."""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scripts.house_rules import Module, statements

ENOUGH = 2
_PROTOCOL = {"Protocol", "typing.Protocol"}


@dataclass
class Shape:
    """What a class, or a module read as one, offers: its methods with their counts of parameters, its attributes."""

    name: str
    place: str
    parents: list[str]
    is_protocol: bool
    methods: dict[str, tuple[int, int]] = field(default_factory=dict)
    attributes: set[str] = field(default_factory=set)


def lonely_protocols(package: Mapping[str, Module], tests: Mapping[str, Module]) -> dict[str, list[str]]:
    """Protocols of the package with fewer than two implementors, each with those it has.

    A protocol of nothing but `__call__` is left out: it is the type of a function already.
    """
    ours = [shape for module in package.values() for shape in _shapes(module)]
    theirs = [shape for module in tests.values() for shape in _shapes(module)]
    by_name = {shape.name: shape for shape in (*theirs, *ours)}
    candidates = [_whole(shape, by_name) for shape in (*ours, *theirs) if not shape.is_protocol]
    candidates += [_module_shape(module) for module in package.values()]
    lonely = {}
    for protocol in (_whole(shape, by_name) for shape in ours if shape.is_protocol):
        if set(protocol.methods) == {"__call__"} and not protocol.attributes:
            continue
        found = [shape.place for shape in candidates if _offers(shape, protocol)]
        if len(found) < ENOUGH:
            lonely[f"{protocol.place} {protocol.name}"] = found
    return lonely


def _shapes(module: Module) -> Iterable[Shape]:
    for node in statements(module.tree):
        if isinstance(node, ast.ClassDef):
            parents = [ast.unparse(parent).split("[")[0].split(".")[-1] for parent in node.bases]
            # `asyncio.Protocol` is a class of callbacks and no type of others.
            is_protocol = any(ast.unparse(parent).split("[")[0] in _PROTOCOL for parent in node.bases)
            shape = Shape(node.name, module.place, parents, is_protocol)
            _fill(shape, node.body)
            yield shape


def _module_shape(module: Module) -> Shape:
    shape = Shape(module.name, module.place, [], is_protocol=False)
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            shape.methods[node.name] = _counts(node, bound=False)
    return shape


def _fill(shape: Shape, body: Iterable[ast.stmt]) -> None:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                decorators = {ast.unparse(one) for one in node.decorator_list}
                if decorators & {"property", "cached_property", "functools.cached_property"}:
                    shape.attributes.add(node.name)
                else:
                    shape.methods[node.name] = _counts(node, bound="staticmethod" not in decorators)
                shape.attributes |= set(_set_on_self(node))
            case ast.AnnAssign(target=ast.Name(id=name)):
                shape.attributes.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                shape.attributes.add(name)
            case _:
                pass


def _set_on_self(function: ast.AST) -> Iterable[str]:
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def _counts(node: ast.FunctionDef | ast.AsyncFunctionDef, *, bound: bool) -> tuple[int, int]:
    """The fewest and the most parameters by position."""
    most = len(node.args.posonlyargs) + len(node.args.args) - (1 if bound else 0)
    fewest = most - len(node.args.defaults)
    return fewest, 1000 if node.args.vararg else most


def _whole(shape: Shape, by_name: Mapping[str, Shape], depth: int = 0) -> Shape:
    """The shape with all that its parents give it."""
    whole = Shape(shape.name, shape.place, shape.parents, shape.is_protocol)
    for parent in reversed(shape.parents):
        if parent in by_name and by_name[parent] is not shape and depth < 10:  # noqa: PLR2004 - no chain is as long
            above = _whole(by_name[parent], by_name, depth + 1)
            whole.methods |= above.methods
            whole.attributes |= above.attributes
    whole.methods |= shape.methods
    whole.attributes |= shape.attributes
    return whole


def _offers(shape: Shape, protocol: Shape) -> bool:
    for name, (fewest, most) in protocol.methods.items():
        if name in shape.attributes:
            continue
        have = shape.methods.get(name)
        if have is None or have[0] > most or have[1] < fewest:
            return False
    return all(name in shape.attributes or name in shape.methods for name in protocol.attributes)
