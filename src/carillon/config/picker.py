"""Document 004's task picker: its names for settings that the engine has under names of its own."""

from typing import Any, Literal

import msgspec

from carillon.config.environment import Tree, steps

SECTION = "task_picker"
AUTO = frozenset({"", "auto", "auto-generate-uuid"})
SAME = {
    "poll_interval": ("work.poll_seconds",),
    # What is claimed together is carried out together, also by a process that has just begun.
    "batch_size": ("work.batch", "work.concurrency", "work.first_claims"),
    "lease_duration": ("ledger.lease_seconds",),
    "max_retries": ('policy.retry."*/sse".max_attempts',),
    "offline_policy": ("providers.sse.offline",),
}
"""Settings that are one with the engine's: whichever name a file or a variable uses, the later one holds."""


class TaskPicker(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How notifications are claimed and carried out, in the document's words."""

    instance_id: str = "auto"
    """What `processing_by` names; `auto` is a UUID of each process."""
    poll_interval: float = 1.0
    batch_size: int = 100
    lease_duration: float = 30.0
    max_retries: int = 3
    """How often a notification is tried in all."""
    lease_cleanup_interval: float = 10.0
    """How often leases that ran out are taken back."""
    offline_policy: Literal["hold", "fail"] = "hold"
    """What becomes of a notification for somebody who is not connected: it waits for them, or fails."""
    delivery_failure: Literal["retry", "terminal"] = "retry"
    """`terminal` gives up after the first failure."""
    ageing: bool = False
    """True gives every priority a share of each claim, so that the lowest is never starved."""
    poll_intervals: dict[Literal["HIGH", "MEDIUM", "LOW"], float] = {}
    """Priorities that are looked for at a pace of their own."""


def folded(tree: Tree) -> tuple[Tree, dict[str, str]]:
    """The tree with the document's names moved to where the engine reads them; which came from where."""
    section = tree.get(SECTION)
    if not isinstance(section, dict):
        return tree, {}
    moved: Tree = {**tree, SECTION: {name: value for name, value in section.items() if name not in SAME}}
    origins: dict[str, str] = {}
    for name in SAME.keys() & section.keys():
        for path in SAME[name]:
            moved = _with(moved, steps(path), section[name])
            origins[path] = f"{SECTION}.{name}"
    return moved, origins


def _with(tree: Tree, path: list[str], value: Any) -> Tree:  # noqa: ANN401 - settings are whatever TOML carries
    name, *rest = path
    if not rest:
        return {**tree, name: value}
    held = tree.get(name)
    return {**tree, name: _with(held if isinstance(held, dict) else {}, rest, value)}
