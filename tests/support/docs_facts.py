"""What the code says about itself, in the form the reference pages print it."""

import ast
import json
import re
import sqlite3
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from typer.main import get_command

from carillon.blueprints.billing.domain import Plan
from carillon.cli import app
from carillon.config.billing import Billing
from carillon.config.reading import blueprint_folder
from carillon.config.sections import SseSettings, Stream, TaskPicker
from carillon.config.settings import CategorySettings, DirectorySettings, GroupMember, GroupSettings, Settings, Tenant
from carillon.domain.breaker import BreakerPolicy
from carillon.domain.events import Event
from carillon.domain.lanes import Lane
from carillon.domain.pace import RatePolicy
from carillon.domain.policy import RetryPolicy
from carillon.domain.queues import Policy
from carillon.doors.http.wire import SendBody
from carillon.ledger.migrate import migrate_sqlite
from carillon.ledger.statements import load as statements
from carillon.providers import kinds, settings_of
from carillon.providers.sandbox import Drill
from carillon.upkeep.metrics.instruments import ATTRIBUTES, CARILLON, Instrument
from carillon.upkeep.metrics.queues import ATTRIBUTES as QUEUE_ATTRIBUTES
from tests.support.declared import declared

NO_DEFAULT = "needed"
_ENTRIES: dict[str, type[msgspec.Struct]] = {
    'policy.retry."origin/channel"': RetryPolicy,
    "policy.breaker.provider": BreakerPolicy,
    "policy.rate.provider": RatePolicy,
    "lanes.name": Lane,
    "groups.provider": GroupSettings,
    "groups.provider.members.name": GroupMember,
    "tenant.id": Tenant,
    "categories.name": CategorySettings,
    "queue.name": Policy,
    "stream": Stream,
    "task_picker": TaskPicker,
    "sse": SseSettings,
    "directory": DirectorySettings,
    "billing": Billing,
    "billing.plans.id": Plan,
    "metrics.instruments.what": Instrument,
}


def shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def settings() -> dict[str, str]:
    """Every plain setting with its default, as the first two columns of settings.md."""
    found = dict(_fields(Settings, ""))
    for path, kind in _ENTRIES.items():
        found |= dict(_fields(kind, f"{path}."))
    for kind_name in kinds():
        found |= dict(_fields(settings_of(kind_name), f"{kind_name}: "))
    return found


def _fields(kind: type[msgspec.Struct], path: str) -> Iterator[tuple[str, str]]:
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            default = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        else:
            yield path + field.encode_name, NO_DEFAULT
            continue
        if isinstance(default, msgspec.Struct):
            yield from _fields(type(default), f"{path}{field.name}.")
        elif path + field.name not in {"policy.retry", "policy.breaker", "policy.rate"}:
            yield path + field.encode_name, shown(default)


def blueprint(name: str = "local") -> dict[str, Any]:
    text = (blueprint_folder(name) / "blueprint.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def commands() -> dict[str, set[str]]:
    """Every command with the long names of its options; the command line builds its parsers anew at each look."""
    return dict(_commands(get_command(app), "carillon"))


def _commands(command: Any, path: str) -> Iterator[tuple[str, set[str]]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, f"{path} {name}")
        return
    words = (word for parameter in command.params for word in parameter.opts if parameter.param_type_name == "option")
    yield path, {word for word in words if word.startswith("--")} - {"--help"}


def help_texts() -> dict[str, tuple[str, dict[str, str]]]:
    """Every command with its own sentence and those of its options, by long name."""
    return {path: (command.help, texts) for path, command, texts in _helps(get_command(app), "carillon")}


def _helps(command: Any, path: str) -> Iterator[tuple[str, Any, dict[str, str]]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _helps(inner, f"{path} {name}")
        return
    options = (each for each in command.params if each.param_type_name == "option" and each.help)
    yield path, command, {next(word for word in each.opts if word.startswith("--")): each.help for each in options}


def endpoints() -> set[tuple[str, str]]:
    return {(endpoint.method, endpoint.path) for endpoint in declared()}


def tables() -> dict[str, list[str]]:
    """Every table with its columns, asked of a migrated database."""
    with sqlite3.connect(":memory:", isolation_level=None) as connection:
        migrate_sqlite(connection, statements("sqlite"))
        every = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        names = [row[0] for row in connection.execute(every)]
        found = {
            name: [row[1] for row in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,))]
            for name in names
        }
    connection.close()
    return found


def events() -> dict[str, set[str]]:
    """The words of our events with their fields."""
    return {
        str(kind.__struct_config__.tag): {field.name for field in msgspec.structs.fields(kind)}
        for kind in Event.__args__
    }


def metrics(table: dict[str, Instrument] | None = None) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Every metric with its unit and its attributes, ours or a blueprint's."""
    known = ATTRIBUTES | QUEUE_ATTRIBUTES
    return {
        one.name: (one.unit, known[counted] if one.attributes is None else tuple(one.attributes.values()))
        for counted, one in (table or CARILLON).items()
    }


def drill_fields() -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(Drill)}


def send_fields() -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(SendBody)}


def process_events(sources: list[str]) -> set[str]:
    """The words of lines that are no event of the engine: handed to a sink, chosen before that, or written raw."""
    found = {name for text in sources for name in re.findall(r'"event":"(\w+)"', text)}
    for text in sources:
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=ast.Attribute(attr="emit" | "header"), args=[_, ast.Constant(value=str(name)), *_]):
                    found.add(name)
                case ast.Assign(
                    targets=[ast.Name(id="event")],
                    value=ast.IfExp(body=ast.Constant(value=str(one)), orelse=ast.Constant(value=str(other))),
                ):
                    found |= {one, other}
                case _:
                    pass
    return found


def fault_points(sources: list[str]) -> set[str]:
    return {name for text in sources for name in re.findall(r'faultpoint\("(\w+)"\)', text)}
