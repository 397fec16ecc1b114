"""Settings from a blueprint, a user's TOML file and the environment, each over the one before."""

import os
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from carillon.domain.errors import ConfigurationError
from carillon.settings import Settings

PREFIX = "CARILLON_"
BLUEPRINTS = files("carillon.blueprints")
COMMAND_LINE = frozenset({"BLUEPRINT", "CHILD", "CONFIG", "FAULTPOINTS", "TOKEN", "URL"})
"""What stands behind the prefix in variables that are no settings."""
ALIASES = {
    # The documents' own names for parts of a retry policy.
    "maxAttempts": "max_attempts",
    "baseDelaySeconds": "base_delay_seconds",
    "backoffFactor": "backoff_factor",
    "maxBackoffSeconds": "max_delay_seconds",
    "timeoutSeconds": "timeout_seconds",
    "backoff_multiplier": "backoff_factor",
}
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m|h|d)$")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SECRET_NAME = re.compile(r"secret|password|token|key|credential|authorization", re.IGNORECASE)
# A password may hold @ and / where nobody encoded it: everything up to the last @ counts.
_PASSWORD = re.compile(r"://[^/@\s:]*:(\S+)@")
_USERINFO = re.compile(r"://\S+@")
_PARAMETER = re.compile(rf"([?&][^=&\s]*(?:{_SECRET_NAME.pattern})[^=&\s]*=)([^&#\s]+)", re.IGNORECASE)
_PATH = re.compile(r"`\$\.?([^`]*)`")
_FIELD = re.compile(r"field `([^`]*)`")


def load(
    blueprint: str | None = None, config: Path | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """The settings of one process; ConfigurationError names what is wrong and where."""
    environ = os.environ if environ is None else environ
    user = _read_toml(config) if config is not None else {}
    name = str(blueprint or user.pop("extends", None) or "local")
    user.pop("extends", None)
    folder = blueprint_folder(name)
    tree = _read_toml(folder / "blueprint.toml")
    names: dict[str, str] = tree.pop("env", {})
    tree = _merge(tree, user)
    for variable, path in names.items():
        if environ.get(variable):
            _put(tree, path.split("."), environ[variable])
    for variable, value in environ.items():
        if variable.startswith(PREFIX) and variable.removeprefix(PREFIX) not in COMMAND_LINE:
            _put(tree, variable.removeprefix(PREFIX).lower().split("__"), value)
    tree["blueprint"] = name
    settings = _convert(tree)
    _check(settings, environ)
    return settings


def blueprint_folder(name: str) -> Traversable:
    """Where a blueprint's files lie."""
    folder = BLUEPRINTS / name
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or not (folder / "blueprint.toml").is_file():
        raise ConfigurationError(f"there is no blueprint {name!r}; known: {', '.join(blueprint_names())}")
    return folder


def blueprint_names() -> list[str]:
    """Every blueprint that is shipped."""
    return sorted(entry.name for entry in BLUEPRINTS.iterdir() if (entry / "blueprint.toml").is_file())


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as plain data, with nothing secret in them."""
    plain: dict[str, Any] = msgspec.to_builtins(settings)
    return {name: _mask(name, value) for name, value in plain.items()}


def secrets(settings: Settings) -> set[str]:
    """Every secret value there is, for the log to hide wherever it turns up."""
    found: set[str] = set()
    _collect("", msgspec.to_builtins(settings), found)
    return found


def _collect(name: str, value: object, found: set[str]) -> None:
    if isinstance(value, dict):
        for inner, held in value.items():
            _collect(name if _SECRET_NAME.search(name) else inner, held, found)
    elif isinstance(value, list):
        for held in value:
            _collect(name, held, found)
    elif isinstance(value, str) and value:
        if _SECRET_NAME.search(name):
            found.add(value)
        found.update(unquote(part) for part in _PASSWORD.findall(value))
        found.update(unquote(part) for _, part in _PARAMETER.findall(value))


def _mask(name: str, value: Any) -> Any:  # noqa: ANN401 - settings are whatever TOML carries
    if isinstance(value, dict):
        return {inner: _mask(name if _SECRET_NAME.search(name) else inner, held) for inner, held in value.items()}
    if isinstance(value, list):
        return [_mask(name, held) for held in value]
    if isinstance(value, str) and value:
        if _SECRET_NAME.search(name):
            return "********"
        return _PARAMETER.sub(r"\1********", _USERINFO.sub("://********@", value))
    return value


def _read_toml(path: Path | Traversable) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        held = merged.get(name)
        merged[name] = _merge(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return merged


def _put(tree: dict[str, Any], path: list[str], value: str) -> None:
    for name in path[:-1]:
        held = tree.setdefault(name, {})
        if not isinstance(held, dict):
            raise ConfigurationError(f"{'.'.join(path)}: {name} holds a value, not a section")
        tree = held
    held = tree.get(path[-1])
    # A list is written in the environment as words separated by commas.
    as_list = isinstance(held, list) or path[-1] == "secrets"
    tree[path[-1]] = [word.strip() for word in value.split(",") if word.strip()] if as_list else value


def _convert(tree: dict[str, Any]) -> Settings:
    policy = tree.get("policy", {})
    tables = policy.get("retry", {}) if isinstance(policy, dict) else None
    if isinstance(tables, dict):
        tree = _merge(tree, {"policy": {}})
        tree["policy"]["retry"] = {
            name: _renamed(table) if isinstance(table, dict) else table for name, table in tables.items()
        }
    try:
        # Not strict: what came through the environment is text.
        return msgspec.convert(_seconds(tree), Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_readable(str(error))) from None


def _renamed(table: dict[str, Any]) -> dict[str, Any]:
    renamed = {ALIASES.get(name, name): value for name, value in table.items()}
    if isinstance(renamed.get("jitterMs"), int | float):
        renamed["jitter_seconds"] = renamed.pop("jitterMs") / 1000
    return renamed


def _seconds(value: Any, name: str = "") -> Any:  # noqa: ANN401 - settings are whatever TOML carries
    """Durations may be written as `"3s"`, `"5m"`, `"168h"` wherever seconds are meant."""
    if isinstance(value, dict):
        return {inner: _seconds(held, inner) for inner, held in value.items()}
    if isinstance(value, str) and name.endswith("_seconds"):
        found = _DURATION.match(value.strip())
        return float(found[1]) * _UNITS[found[2]] if found else value
    return value


def _readable(text: str) -> str:
    where = _PATH.search(text)
    field = _FIELD.search(text)
    parts = [part for part in ((where[1] if where else ""), (field[1] if field else "")) if part]
    said = text.partition(" - at `")[0]
    return f"{'.'.join(parts)}: {said}" if parts else said


def _check(settings: Settings, environ: Mapping[str, str]) -> None:
    if environ.get("ENV") == "production":
        if settings.drill.time_scale != 1.0:
            raise ConfigurationError("drill.time_scale: time scaling is refused when ENV=production")
        if environ.get("CARILLON_FAULTPOINTS"):
            raise ConfigurationError("CARILLON_FAULTPOINTS is refused when ENV=production")
    for path, value, least, most in (
        ("drill.time_scale", settings.drill.time_scale, 1e-6, 1e6),
        ("ledger.lease_seconds", settings.ledger.lease_seconds, 0.05, 86_400),
        ("work.concurrency", settings.work.concurrency, 1, 100_000),
        ("work.batch", settings.work.batch, 1, 10_000),
        ("work.poll_seconds", settings.work.poll_seconds, 0.001, 3600),
        ("http.max_body_bytes", settings.http.max_body_bytes, 1024, 64 * 1024 * 1024),
        ("http.port", settings.http.port, 0, 65_535),
    ):
        if not least <= value <= most:
            raise ConfigurationError(f"{path}: {value} is not between {least:g} and {most:g}")
    _check_policies(settings)
    for channel, providers in settings.channels.items():
        for provider in providers:
            if provider not in settings.providers:
                raise ConfigurationError(f"channels.{channel}: there is no [providers.{provider}]")


def _check_policies(settings: Settings) -> None:
    if "*/*" not in settings.policy.retry:
        raise ConfigurationError('policy.retry."*/*": the default policy is missing')
    lease = settings.ledger.lease_seconds
    for name, table in settings.policy.retry.items():
        seconds = table.policy(name).timeout_seconds
        if seconds >= lease * 0.9:
            raise ConfigurationError(
                f'policy.retry."{name}".timeout_seconds: a call ({seconds:g} s) must be shorter than nine tenths of '
                f"ledger.lease_seconds ({lease:g} s)"
            )
    for name, breaker in settings.policy.breaker.items():
        # A breaker without a probe would never close again.
        if min(breaker.failure_threshold, breaker.success_threshold, breaker.half_open_max_probes) < 1:
            raise ConfigurationError(f'policy.breaker."{name}": thresholds and probes must be at least 1')
    for name, lane in settings.lanes.items():
        if lane.weight < 1:
            raise ConfigurationError(f"lanes.{name}.weight: must be at least 1")
