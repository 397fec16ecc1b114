"""Settings from a blueprint, a user's TOML file and the environment, each over the one before."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

import msgspec

from carillon.border import hint
from carillon.config import environment as config_environment
from carillon.config.checks import CALL_SHARE, check
from carillon.config.environment import Tree, steps
from carillon.config.policies import named_queues, renamed
from carillon.config.settings import Settings
from carillon.domain.errors import ConfigurationError
from carillon.patterns import in_words

BLUEPRINTS = files("carillon.blueprints")
_SECRET_NAME = re.compile(r"secret|password|token|key|credential|authorization|connection_string", re.IGNORECASE)
_PUBLIC = frozenset(
    {"callback_key", "lease_keys", "public_key_file", "template_service_token_file", "webhook_public_key"}
)
"""Names that look like secrets and are not."""
_PATH_OF_SECRETS = re.compile(r"[^\n{]{1,255}")
"""The form of a `credentials_file`; anything else may be the credentials themselves, and is masked."""
# A password that is not URL-encoded may hold @ and /: mask everything up to the last @.
_PASSWORD = re.compile(r"://[^/@\s:]*:(\S+)@")
_USERINFO = re.compile(r"://\S+@")
_PARAMETER = re.compile(r"([?&]([^=&?\s]+)=)([^&#\s]+)")
"""A URL's parameter; whether it is a secret is its name's word."""
_PATH = re.compile(r"`\$\.?([^`]*)`")
_FIELD = re.compile(r"field `([^`]*)`")
_MEANT = re.compile(r"`([^`]*)`")
PICKER = "task_picker"
PICKER_NAMES = {
    "poll_interval": ("work.poll_seconds",),
    # A process works on a whole batch at once, from its first claim on.
    "batch_size": ("work.batch", "work.concurrency", "work.first_claims"),
    "lease_duration": ("ledger.lease_seconds",),
    "max_retries": ('policy.retry."*/sse".max_attempts',),
    "offline_policy": ("providers.sse.offline",),
}
"""The settings of the task picker that are other names of engine settings; the later of the two values wins."""

Needs = Literal["everything", "ledger", "nothing"]
"""The servers that a command calls."""
MOVED = {"silence_seconds": "suppressions.bounced_seconds and suppressions.invalid_seconds"}
"""Settings of earlier releases, by their last name, and what to set instead."""


def load(
    blueprint: str | None = None,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    needs: Needs = "everything",
) -> Settings:
    """The settings of one process; raises ConfigurationError with the name of the wrong setting.

    A command that needs only the ledger, and a rehearsal, which needs no server, work without the variables of the
    others: addresses of nobody stand in for those that are missing.
    """
    environ = os.environ if environ is None else environ
    name, below, user, tables = _trees(blueprint, config)
    if needs != "everything":
        stand_ins = config_environment.stand_ins(tables, ledger=needs == "nothing")
        # A variable that is set to nothing is not set, here as elsewhere.
        environ = {**environ, **{name: one for name, one in stand_ins.items() if not environ.get(name, "").strip()}}
    tree, _ = _picker_folded(below)
    user, said = _picker_folded(user)
    tree = _merge(tree, user)
    origins = said | config_environment.apply(tree, tables, environ)
    tree, said = _picker_folded(tree)
    origins |= said
    if isinstance(tree.get("push"), dict) and "concurrency" in tree.get("work", {}):
        # In earlier releases the one number was both.
        tree = _merge({"push": {"prefetch": tree["work"]["concurrency"]}}, tree)
    tree["blueprint"] = name
    try:
        settings = _picked(_fitted(_convert(tree)))
        check(settings, environ)
    except ConfigurationError as error:
        raise ConfigurationError(config_environment.blame(str(error), origins)) from None
    return settings


def _trees(blueprint: str | None, config: Path | None) -> tuple[str, Tree, Tree, dict[str, Tree]]:
    """The blueprint's name, its settings, those of the file, and the blueprint's tables of variables."""
    user = _read_toml(config) if config is not None else {}
    name = str(blueprint or user.pop("extends", None) or "local")
    user.pop("extends", None)
    tree = _read_toml(blueprint_folder(name) / "blueprint.toml")
    tables = {table: tree.pop(table, {}) for table in config_environment.TABLES}
    return name, _breakers_folded(tree), _breakers_folded(user), tables


def sources(
    blueprint: str | None = None, config: Path | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Where the value of each setting comes from: a variable, the file, or the blueprint; the rest are defaults."""
    environ = os.environ if environ is None else environ
    name, tree, user, tables = _trees(blueprint, config)
    found = dict.fromkeys(_paths(tree), f"blueprint {name}")
    found |= {path: str(config) for path in _paths(user)}
    found |= config_environment.filled_by(tables, environ)
    return found


def _paths(tree: Tree, above: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def ignored(blueprint: str, environ: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Variables of the blueprint that are set and have no effect, each with the reason."""
    tables = _read_toml(blueprint_folder(blueprint) / "blueprint.toml")
    return config_environment.ignored(tables, os.environ if environ is None else environ)


def variables(blueprint: str) -> dict[str, str]:
    """Settings that a variable of the blueprint fills, each with that variable."""
    table = _read_toml(blueprint_folder(blueprint) / "blueprint.toml").get("env", {})
    return {path: name for name, paths in table.items() for path in ([paths] if isinstance(paths, str) else paths)}


def blueprint_folder(name: str) -> Traversable:
    """The folder of a blueprint's files."""
    # A folder with Python modules is a package, and a package's name has no dashes.
    folder = BLUEPRINTS / name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or not (folder / "blueprint.toml").is_file():
        several = "; only `serve` takes several" if "," in name else ""
        raise ConfigurationError(f"there is no blueprint {name!r}; known: {', '.join(blueprint_names())}{several}")
    return folder


def blueprint_names() -> list[str]:
    """Every blueprint that is shipped."""
    return sorted(
        entry.name.replace("_", "-") for entry in BLUEPRINTS.iterdir() if (entry / "blueprint.toml").is_file()
    )


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as plain data, with secrets masked."""
    plain: dict[str, Any] = msgspec.to_builtins(settings)
    return {name: _mask(name, value) for name, value in plain.items()}


def secrets(settings: Settings) -> set[str]:
    """Every secret value of the settings, which the log masks."""
    found: set[str] = set()
    _collect("", msgspec.to_builtins(settings), found)
    return found


def _collect(name: str, value: object, found: set[str]) -> None:
    if isinstance(value, dict):
        for inner, held in value.items():
            _collect(name if _is_secret(name) else inner, held, found)
    elif isinstance(value, list):
        for held in value:
            _collect(name, held, found)
    elif isinstance(value, str) and value:
        if _is_secret(name, value):
            found.add(value)
        found.update(unquote(part) for part in _PASSWORD.findall(value))
        found.update(unquote(part) for _, name, part in _PARAMETER.findall(value) if _SECRET_NAME.search(name))


def _is_secret(name: str, value: str = "") -> bool:
    if name == "credentials_file" and _PATH_OF_SECRETS.fullmatch(value):
        return False
    return name not in _PUBLIC and _SECRET_NAME.search(name) is not None


def _mask(name: str, value: Any) -> Any:  # noqa: ANN401 - settings are whatever TOML carries
    if isinstance(value, dict):
        return {inner: _mask(name if _is_secret(name) else inner, held) for inner, held in value.items()}
    if isinstance(value, list):
        return [_mask(name, held) for held in value]
    if isinstance(value, str) and value:
        if _is_secret(name, value):
            return "********"
        return _PARAMETER.sub(_masked_parameter, _USERINFO.sub("://********@", value))
    return value


def _masked_parameter(found: re.Match[str]) -> str:
    return f"{found[1]}********" if _SECRET_NAME.search(found[2]) else found[0]


def _read_toml(path: Path | Traversable) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _breakers_folded(tree: dict[str, Any]) -> dict[str, Any]:
    """`[policy.breaker.Twilio]` and `[policy.breaker.twilio]` are one table; rates as well."""
    policy = tree.get("policy")
    if not isinstance(policy, dict):
        return tree
    found = {kind: policy[kind] for kind in ("breaker", "rate") if isinstance(policy.get(kind), dict)}
    folded = {kind: {name.lower(): table for name, table in tables.items()} for kind, tables in found.items()}
    return {**tree, "policy": {**policy, **folded}}


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        held = merged.get(name)
        merged[name] = _merge(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return merged


def _convert(tree: dict[str, Any]) -> Settings:
    policy = tree.get("policy", {})
    tables = policy.get("retry", {}) if isinstance(policy, dict) else None
    if isinstance(tables, dict):
        tree = _merge(tree, {"policy": {}})
        tree["policy"]["retry"] = {
            name: renamed(table) if isinstance(table, dict) else table for name, table in tables.items()
        }
    if isinstance(tree.get("queue"), dict):
        tree = {**tree, "queue": named_queues(tree["queue"])}
    try:
        # Not strict: values from the environment are text.
        return msgspec.convert(_seconds(tree), Settings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(_readable(in_words(str(error))) + _meant(str(error))) from None


def _seconds(value: Any, name: str = "") -> Any:  # noqa: ANN401 - settings are whatever TOML carries
    """Durations may be written as `"3s"`, `"5m"`, `"168h"` wherever seconds are meant."""
    if isinstance(value, dict):
        if name == "poll_intervals":
            # Variables have no case; one comes after the file's table, and takes the place of its value.
            return {inner.upper(): _seconds(held, "_interval") for inner, held in value.items()}
        return {inner: _seconds(held, inner) for inner, held in value.items()}
    if isinstance(value, str) and name.endswith(("_seconds", "_after", "_interval", "_duration")):
        found = config_environment.duration(value)
        return value if found is None else found
    return value


def _readable(text: str) -> str:
    where = _PATH.search(text)
    field = _FIELD.search(text)
    parts = [part for part in ((where[1] if where else ""), (field[1] if field else "")) if part]
    said = text.partition(" - at `")[0]
    return f"{'.'.join(parts)}: {said}" if parts else said


def _meant(text: str) -> str:
    """The closest known name; for a top-level setting also its variable, because a missing underscore is common."""
    moved = next((MOVED[name] for name in _MEANT.findall(text) if name in MOVED), None)
    if moved is not None:
        return f"; set {moved} instead"
    found = hint(text, Settings)
    return found if _PATH.search(text) else _MEANT.sub(lambda name: f"{name[0]} ({_variable(name[1])})", found)


def _variable(path: str) -> str:
    return config_environment.PREFIX + path.replace(".", "__").upper()


def _fitted(settings: Settings) -> Settings:
    """Normalise email addresses, and shorten calls to their lease if the settings ask for it."""
    emails = {
        kind: list(dict.fromkeys(word.strip().lower() for word in held)) for kind, held in settings.admin_emails.items()
    }
    retry = settings.policy.retry
    if settings.ledger.shorten_calls:
        longest = settings.ledger.lease_seconds * CALL_SHARE * CALL_SHARE
        retry = {
            name: msgspec.structs.replace(table, timeout_seconds=min(table.timeout_seconds, longest))
            for name, table in retry.items()
        }
    policy = msgspec.structs.replace(settings.policy, retry=retry)
    return msgspec.structs.replace(settings, policy=policy, admin_emails=emails, providers=_answers(settings))


def _picked(settings: Settings) -> Settings:
    """Apply the task picker of the blueprint sse; its own fields then show the values in force."""
    picker, work, providers = settings.task_picker, settings.work, settings.providers
    if picker is None:
        return settings
    streams = {name: table for name, table in settings.policy.retry.items() if name.endswith("/sse")}
    tries = [table.max_attempts for table in streams.values() if table.max_attempts]
    if picker.delivery_failure == "terminal":
        streams = {name: msgspec.structs.replace(table, max_attempts=1) for name, table in streams.items()}
    paces = {str(queue_name): pace for queue_name, pace in picker.poll_intervals.items()}
    lanes = {
        name: msgspec.structs.replace(lane, poll_seconds=pace) if (pace := paces.get(lane.queue_name)) else lane
        for name, lane in settings.lanes.items()
    }
    shown = msgspec.structs.replace(
        picker,
        poll_interval=work.poll_seconds,
        batch_size=work.batch,
        lease_duration=settings.ledger.lease_seconds,
        max_retries=min(tries, default=picker.max_retries),
        offline_policy=providers.get("sse", {}).get("offline", picker.offline_policy),
    )
    work = msgspec.structs.replace(
        work,
        strict_lanes=work.strict_lanes and not picker.ageing,
        poll_seconds=min([work.poll_seconds, *(pace for pace in paces.values() if pace > 0)]),
    )
    policy = msgspec.structs.replace(settings.policy, retry={**settings.policy.retry, **streams})
    return msgspec.structs.replace(settings, task_picker=shown, work=work, policy=policy, lanes=lanes)


def _answers(settings: Settings) -> dict[str, dict[str, Any]]:
    """The providers; with `push.retry_429 = false` FCM's 408 and 429 are refusals, as push-worker's text says."""
    if settings.push is None or settings.push.retry_429:
        return settings.providers
    refusal = {"outcome": "refused", "classification": "throttled"}
    literal = dict.fromkeys(("408", "429", "QUOTA_EXCEEDED", "RESOURCE_EXHAUSTED"), refusal)
    return {
        name: {**options, "answers": {**options.get("answers", {}), **literal}}
        if options.get("kind") == "fcm"
        else options
        for name, options in settings.providers.items()
    }


def _picker_folded(tree: Tree) -> tuple[Tree, dict[str, str]]:
    """The tree with the picker's names moved to where the engine reads them, and the origin of each moved value."""
    section = tree.get(PICKER)
    if not isinstance(section, dict):
        return tree, {}
    moved: Tree = {**tree, PICKER: {name: value for name, value in section.items() if name not in PICKER_NAMES}}
    origins: dict[str, str] = {}
    for name in PICKER_NAMES.keys() & section.keys():
        for path in PICKER_NAMES[name]:
            moved = _with(moved, steps(path), section[name])
            origins[path] = f"{PICKER}.{name}"
    return moved, origins


def _with(tree: Tree, path: list[str], value: Any) -> Tree:  # noqa: ANN401 - settings are whatever TOML carries
    name, *rest = path
    if not rest:
        return {**tree, name: value}
    held = tree.get(name)
    return {**tree, name: _with(held if isinstance(held, dict) else {}, rest, value)}
