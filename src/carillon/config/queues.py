"""The settings of list queues: a policy for each, and the beat of their upkeep."""

import re
from typing import Any

import msgspec

from carillon.domain.queue_policy import Beat, Policy

EVERY_OTHER = "*"
_NOT_IN_VARIABLES = re.compile(r"[^a-z0-9]")


class QueueTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One queue's policy as it is written; what is not said is as under `*`, else document 003's default."""

    max_retries: int | None = None
    base_delay_seconds: float | None = None
    backoff_multiplier: float | None = None
    max_delay_seconds: float | None = None
    jitter_seconds: float | None = None
    lock_ttl_seconds: float | None = None
    visibility_timeout_seconds: float | None = None
    timeout_seconds: float | None = None
    first_exponent: int | None = None
    concurrency: int | None = None


def policies(tables: dict[str, QueueTable], scale: float = 1.0) -> dict[str, Policy]:
    """The policy of every queue that is named, and of `*`; waits shortened or stretched by the drill's time scale."""
    below = _said(tables.get(EVERY_OTHER, QueueTable()))
    names = dict.fromkeys([EVERY_OTHER, *tables])
    found = {name: Policy(**{**below, **_said(tables.get(name, QueueTable()))}) for name in names}
    return {name: policy.checked(name).scaled(scale) for name, policy in found.items()}


def named(tables: dict[str, Any]) -> dict[str, Any]:
    """Tables under their queues' names: variables hold no colons, so `q_pay_refund_initiation` is one of them too."""
    known = {_NOT_IN_VARIABLES.sub("_", name.lower()): name for name in tables if ":" in name}
    found: dict[str, Any] = {}
    # Those of the environment come last, over what files say.
    for name in sorted(tables, key=lambda name: ":" not in name):
        queue = name if ":" in name else known.get(name) or _spelt_out(name)
        held, table = found.get(queue), tables[name]
        found[queue] = {**held, **table} if isinstance(held, dict) and isinstance(table, dict) else table
    return found


def checked(tables: dict[str, QueueTable], beat: Beat) -> None:
    """Stop at the first setting that cannot work, by its name."""
    policies(tables)
    beat.checked()


def _spelt_out(name: str) -> str:
    if name == "default":
        return EVERY_OTHER
    parts = name.split("_", 2)
    return ":".join(parts) if parts[0] == "q" and all(parts) and len(parts) > 2 else name  # noqa: PLR2004 - q, domain, name


def _said(table: QueueTable) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(table).items() if value is not None}
