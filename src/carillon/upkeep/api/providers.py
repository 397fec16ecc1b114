"""Which providers had a notification, in the order of failover, and what each called it last."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Chains = Mapping[str, Sequence[str]]


def providers_of(
    routes: Iterable[Mapping[str, Any]], attempts: Sequence[Mapping[str, Any]], chains: Chains
) -> tuple[list[str], list[str | None]]:
    """Names and message ids under one index: the primary first, None for whoever gave no id or was passed over."""
    names: dict[str, str | None] = {}
    for route in routes:
        tried = [attempt for attempt in attempts if attempt["route_id"] == route["route_id"]]
        for name in _in_order({attempt["provider"]: None for attempt in tried}, chains.get(route["channel"], ())):
            names.setdefault(name, None)
        for attempt in tried:
            names[attempt["provider"]] = attempt["provider_message_id"] or names[attempt["provider"]]
    return list(names), list(names.values())


def _in_order(tried: Mapping[str, None], chain: Sequence[str]) -> list[str]:
    """Up to the last one tried, those before it included: their place says who they are."""
    known = [place for place, name in enumerate(chain) if name in tried]
    reached = list(chain)[: max(known) + 1] if known else []
    return [*reached, *(name for name in tried if name not in reached)]
