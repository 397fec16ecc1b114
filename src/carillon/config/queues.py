"""The settings of list queues: a policy for each, and the intervals of their upkeep."""

import re
from typing import Any

from carillon.domain.queue_policy import Beat, Policy

EVERY_OTHER = "*"
_NOT_IN_VARIABLES = re.compile(r"[^a-z0-9]")


def policies(tables: dict[str, Policy], scale: float = 1.0) -> dict[str, Policy]:
    """The policy of every queue that is named, and of `*`; waits shortened or stretched by the drill's time scale."""
    found = {EVERY_OTHER: Policy(), **tables}
    return {name: policy.checked(name).scaled(scale) for name, policy in found.items()}


def named(tables: dict[str, Any]) -> dict[str, Any]:
    """Whole tables under their queues' names; what a table does not say is as under `*`.

    Variables hold no colons: `q_pay_refund_initiation` names `q:pay:refund_initiation`.
    """
    known = {_NOT_IN_VARIABLES.sub("_", name.lower()): name for name in tables if ":" in name}
    found: dict[str, Any] = {}
    # Tables of the environment come last, over what files say.
    for name in sorted(tables, key=lambda name: ":" not in name):
        queue = name if ":" in name else known.get(name) or _spelt_out(name)
        found[queue] = _over(found.get(queue), tables[name])
    return {queue: _over(found.get(EVERY_OTHER), table) for queue, table in found.items()}


def checked(tables: dict[str, Policy], beat: Beat) -> None:
    """Stop at the first setting that cannot work, by its name."""
    policies(tables)
    beat.checked()


def _spelt_out(name: str) -> str:
    if name == "default":
        return EVERY_OTHER
    parts = name.split("_", 2)
    return ":".join(parts) if parts[0] == "q" and all(parts) and len(parts) > 2 else name  # noqa: PLR2004 - q, domain, name


def _over(below: object, above: object) -> Any:  # noqa: ANN401 - settings are whatever TOML carries
    return {**below, **above} if isinstance(below, dict) and isinstance(above, dict) else above
