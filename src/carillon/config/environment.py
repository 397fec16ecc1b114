"""Reads environment variables: the blueprint's own names and CARILLON_*, with durations, lists and addresses."""

import math
import re
from collections.abc import Mapping
from typing import Any

from carillon.border import takes_list
from carillon.config.settings import Settings
from carillon.domain import timing
from carillon.domain.errors import ConfigurationError

PREFIX = "CARILLON_"
COMMAND_LINE = frozenset({"BLUEPRINT", "CHILD", "CONFIG", "FAULTPOINTS", "TOKEN", "TOKEN_FILE", "URL"})
"""CARILLON_* variables that only the command line reads."""
TABLES = ("env", "env_required", "env_refused", "env_ignored")
ADDRESS = "http.address"
"""Not a setting: host and port together, as `:8092`, `host:8092` or `[::1]:8092`."""

Tree = dict[str, Any]
Origins = dict[str, str]
"""Setting to the variable that filled it."""

_ANY_HOST = "0.0.0.0"  # noqa: S104 - what an address without a host means
_NUMBER = r"\d+(?:\.\d+)?"
_LONGEST_SECONDS = 100 * 366 * 86400.0
_STEP = re.compile(r'"([^"]*)"|([^."]+)')
_WHERE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]*):(?P<port>\d{1,5})")
_HIGHEST_PORT = 65_535
_MAY_BE_NONE = frozenset({"db", "max_idle_connections"})
_LISTS = frozenset(
    {"allow_hosts", "allow_networks", "allow_ports", "data_variables", "recipient_schemes", "secrets", "supported"}
)
"""Lists that no type of the settings tells: options of providers, and what a blueprint's own variables fill."""
_TRUE, _FALSE = frozenset({"1", "t", "true", "yes", "on"}), frozenset({"0", "f", "false", "no", "off"})


def duration(text: str) -> float | None:
    """`250ms`, `1h30m`, `168h` or `PT10M` in seconds; None for other texts, and for a number that has no unit."""
    text = text.strip()
    return None if re.fullmatch(_NUMBER, text) else timing.duration(text, math.inf)


def apply(tree: Tree, tables: Mapping[str, Tree], environ: Mapping[str, str]) -> Origins:
    """Write the environment's values into the tree; returns which of the blueprint's variables filled which setting."""
    for variable, instead in tables.get("env_refused", {}).items():
        if environ.get(variable):
            raise ConfigurationError(f"{variable}: is not supported; {instead}")
    origins: Origins = {}
    names = tables.get("env", {})
    for variable, paths in names.items():
        if environ.get(variable):
            for path in [paths] if isinstance(paths, str) else paths:
                _fill(tree, path, variable, environ[variable].strip())
                origins[path] = variable
    for variable, value in environ.items():
        if variable.startswith(PREFIX) and variable.removeprefix(PREFIX) not in COMMAND_LINE:
            _put(tree, variable.removeprefix(PREFIX).lower().split("__"), value)
    _require(tree, tables, names)
    return origins


def filled_by(tables: Mapping[str, Tree], environ: Mapping[str, str]) -> Origins:
    """The settings that the environment fills, under their plain dotted names."""
    found: Origins = {}
    for variable, paths in tables.get("env", {}).items():
        if environ.get(variable):
            for path in [paths] if isinstance(paths, str) else paths:
                for place in ("http.host", "http.port") if path == ADDRESS else (".".join(steps(path)),):
                    found[place] = variable
    for variable in environ:
        if variable.startswith(PREFIX) and variable.removeprefix(PREFIX) not in COMMAND_LINE:
            found[".".join(variable.removeprefix(PREFIX).lower().split("__"))] = variable
    return found


LEDGER = "ledger.url"
_STAND_INS = (
    ("DATABASE_URL", "sqlite:///nobody.db"),
    ("RABBITMQ_URL", "amqp://nobody.invalid/"),
    ("REDIS_URL", "redis://nobody.invalid:6379/0"),
    ("_DSN", "postgresql://nobody.invalid/nobody?search_path=notification&sslmode=disable"),
    ("_ADDR", "nobody.invalid:6379"),
    ("_URL", "http://nobody.invalid"),
    ("", "nobody's, and long enough to look like a secret"),
)


def stand_ins(tables: Mapping[str, Tree], *, ledger: bool) -> dict[str, str]:
    """Values for the variables that a blueprint cannot do without, for a program that calls no server.

    `ledger` says whether something stands in for the ledger too: a command that opens it must name it.
    """
    filled = tables.get("env", {})
    return {
        variable: next(value for ending, value in _STAND_INS if variable.endswith(ending))
        for variable in tables.get("env_required", {})
        if ledger or filled.get(variable) != LEDGER
    }


def ignored(tables: Mapping[str, Tree], environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that are set and have no effect, each with the reason."""
    return [(variable, str(why)) for variable, why in tables.get("env_ignored", {}).items() if environ.get(variable)]


def blame(said: str, origins: Origins) -> str:
    """Put the variables that filled the named settings before the error."""
    guilty = dict.fromkeys(variable for path, variable in origins.items() if path in said)
    return ": ".join([*([", ".join(guilty)] if guilty else []), said])


def steps(path: str) -> list[str]:
    """`policy.retry."*/push".max_attempts` as its four names."""
    return [quoted or plain for quoted, plain in _STEP.findall(path)]


def _require(tree: Tree, tables: Mapping[str, Tree], names: Mapping[str, Any]) -> None:
    missing = []
    for variable, purpose in tables.get("env_required", {}).items():
        held: Any = tree
        for step in steps(names[variable]):
            held = held.get(step) if isinstance(held, dict) else None
        if not held:
            missing.append(f"{variable}: is needed and not set: {purpose}")
    if missing:
        # One error names all missing variables.
        raise ConfigurationError("; ".join(missing))


def _fill(tree: Tree, path: str, variable: str, text: str) -> None:
    if path == ADDRESS:
        host, port = _address(variable, text)
        tree["http"] = {**tree.get("http", {}), "host": host, "port": port}
        return
    inside, name = _section(tree, steps(path))
    held = inside.get(name)
    try:
        inside[name] = _value(name, held, text)
    except ValueError as error:
        raise ConfigurationError(f"{variable}: {text!r} {error} ({path})") from None


def _value(name: str, held: object, text: str) -> object:
    """Read the text as the type of the present value; ValueError names the right form."""
    if name.endswith("_seconds"):
        return _seconds(text)
    match held:
        case bool():
            return _truth(text)
        case int():
            return _whole(text, 0 if name in _MAY_BE_NONE else 1)
        case list():
            return words(text)
        case _:
            return _text(name, text)


def _text(name: str, text: str) -> object:
    if name in _LISTS:
        return words(text)
    if name == "level":
        return {"warn": "warning"}.get(text.lower(), text.lower())
    return _host_and_port(text) if name == "address" else text


def _seconds(text: str) -> float:
    found = float(text) if re.fullmatch(_NUMBER, text) else duration(text)
    if found is None:
        raise ValueError("is not a duration such as 250ms, 2s or 1h30m")
    if not 0 < found <= _LONGEST_SECONDS:
        raise ValueError("must be more than 0 and at most 100 years")
    return found


def _truth(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError("is neither true nor false")
    return text.lower() in _TRUE


def _whole(text: str, least: int) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
        raise ValueError(f"is not a whole number from {least} up")
    return int(text)


def words(text: str) -> list[str]:
    """A list is written in the environment as words separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _address(variable: str, text: str) -> tuple[str, int]:
    try:
        host, _, port = _host_and_port(text, host_needed=False).rpartition(":")
    except ValueError as error:
        raise ConfigurationError(f"{variable}: {text!r} {error} (http.host and http.port)") from None
    return host.strip("[]") or _ANY_HOST, int(port)


def _host_and_port(text: str, *, host_needed: bool = True) -> str:
    found = _WHERE.fullmatch(text)
    if found is None or int(found["port"]) > _HIGHEST_PORT or (host_needed and not found["host"]):
        raise ValueError("is no host:port")
    return text


def _section(tree: Tree, path: list[str]) -> tuple[Tree, str]:
    for name in path[:-1]:
        held = tree.setdefault(name, {})
        if not isinstance(held, dict):
            raise ConfigurationError(f"{'.'.join(path)}: {name} holds a value, not a section")
        tree = held
    return tree, path[-1]


def _put(tree: Tree, path: list[str], value: str) -> None:
    inside, name = _section(tree, path)
    many = isinstance(inside.get(name), list) or name in _LISTS or takes_list(Settings, path)
    inside[name] = words(value) if many else value
