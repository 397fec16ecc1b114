"""The sse blueprint's task picker: its names for settings that the engine has under other names."""

from typing import Any, ClassVar, Literal

from carillon.config.environment import Tree, steps
from carillon.config.section import Bounds, Section

SECTION = "task_picker"
AUTO = frozenset({"", "auto", "auto-generate-uuid"})
SAME = {
    "poll_interval": ("work.poll_seconds",),
    # A process works on a whole batch at once, from its first claim on.
    "batch_size": ("work.batch", "work.concurrency", "work.first_claims"),
    "lease_duration": ("ledger.lease_seconds",),
    "max_retries": ('policy.retry."*/sse".max_attempts',),
    "offline_policy": ("providers.sse.offline",),
}
"""Picker settings and the engine settings they are another name for; the later of the two values holds."""


class TaskPicker(Section, frozen=True):
    """How the sse blueprint claims and delivers notifications."""

    bounds: ClassVar[dict[str, Bounds]] = {"lease_cleanup_interval": (0.01, 86_400)}

    instance_id: str = "auto"
    """The value of `processing_by`; `auto` is a UUID of each process."""
    poll_interval: float = 1.0
    batch_size: int = 100
    lease_duration: float = 30.0
    max_retries: int = 3
    """How often a notification is tried in all."""
    lease_cleanup_interval: float = 10.0
    """How often the worker takes back expired leases."""
    offline_policy: Literal["hold", "fail"] = "hold"
    """A notification for a person who is not connected waits (`hold`) or fails."""
    delivery_failure: Literal["retry", "terminal"] = "retry"
    """`terminal` gives up after the first failure."""
    ageing: bool = False
    """True gives every priority a share of each claim, so that the lowest never starves."""
    poll_intervals: dict[Literal["HIGH", "MEDIUM", "LOW"], float] = {}
    """Priorities with their own poll interval."""


def folded(tree: Tree) -> tuple[Tree, dict[str, str]]:
    """The tree with the picker's names moved to where the engine reads them, and the origin of each moved value."""
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
