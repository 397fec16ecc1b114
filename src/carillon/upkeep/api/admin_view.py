"""From the ledger's rows to what administrators read."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from carillon.domain.breaker import State
from carillon.upkeep.api.admin_wire import (
    ActionPage,
    ActionView,
    FailedPage,
    FailedView,
    ProviderList,
    ProviderView,
    RedrivePage,
    RedriveView,
)
from carillon.web.problems import rfc3339_ms

Row = Mapping[str, Any]

_BAD = frozenset({"unavailable", "unknown"})
"""Outcomes that speak against the provider, as its breaker counts them."""


def failed_page(rows: Iterable[Row], total: int, number: int, size: int) -> FailedPage:
    """One page of what was given up."""
    return FailedPage(
        items=[_failed(row) for row in rows],
        total_count=total,
        page_number=number,
        page_size=size,
        total_pages=-(-total // size),
    )


def action_page(rows: Iterable[Row], total: int, number: int, size: int) -> ActionPage:
    """One page of what operators did."""
    return ActionPage(
        items=[_action(row) for row in rows],
        total_count=total,
        page_number=number,
        page_size=size,
        total_pages=-(-total // size),
    )


def redrive_page(rows: Iterable[Row], became: Iterable[Row], total: int, number: int, size: int) -> RedrivePage:
    """One page of redrives with what became of their routes."""
    counts = {row["action_id"]: row for row in became}
    return RedrivePage(
        items=[_redrive(row, counts.get(row["action_id"], {})) for row in rows],
        total_count=total,
        page_number=number,
        page_size=size,
        total_pages=-(-total // size),
    )


def provider_list(
    chains: Mapping[str, Sequence[str]], states: Mapping[str, State], recent: Sequence[Row]
) -> ProviderList:
    """Every provider in use with what its newest attempts say; `recent` comes oldest first."""
    of_pair: dict[tuple[str, str], list[Row]] = {}
    of_channel: dict[str, int] = {}
    for row in recent:
        of_pair.setdefault((row["channel"], row["provider"]), []).append(row)
        of_channel[row["channel"]] = of_channel.get(row["channel"], 0) + 1
    return ProviderList(
        items=[
            _provider(
                channel,
                name,
                position,
                state=states.get(name, State.CLOSED),
                rows=of_pair.get((channel, name), []),
                of_channel=of_channel.get(channel, 0),
            )
            for channel, chain in sorted(chains.items())
            for position, name in enumerate(chain)
        ]
    )


def _provider(
    channel: str, name: str, position: int, *, state: State, rows: Sequence[Row], of_channel: int
) -> ProviderView:
    last: Row = rows[-1] if rows else {}
    return ProviderView(
        channel=channel,
        provider=name,
        position=position,
        state=str(state),
        attempts=len(rows),
        failures=sum(row["outcome"] in _BAD for row in rows),
        share=round(len(rows) / of_channel, 4) if of_channel else None,
        last_outcome=last.get("outcome"),
        last_error=next((row["error"] for row in reversed(rows) if row["error"]), None),
        last_attempt_at=rfc3339_ms(last["started_at"]) if rows else None,
    )


def _failed(row: Row) -> FailedView:
    return FailedView(
        id=row["notification_id"],
        route_id=row["route_id"],
        tenant_id=row["tenant_id"],
        user_id=row["user_id"],
        channel=row["channel"],
        template_key=row["notification_type"],
        status="failed",
        attempt_count=row["final_attempt_count"],
        last_error=row["failure_message"],
        classification=row["failure_classification"],
        provider=row["provider"],
        created_at=rfc3339_ms(row["accepted_at"]),
        failed_at=rfc3339_ms(row["created_at"]),
    )


def _action(row: Row) -> ActionView:
    return ActionView(
        id=row["action_id"],
        at=rfc3339_ms(row["at"]),
        actor=row["actor"],
        action=row["action"],
        tenant_id=row["tenant_id"],
        subject=row["subject"],
        reason=row["reason"],
        detail=row["detail"],
    )


def _redrive(row: Row, became: Row) -> RedriveView:
    detail, last = row["detail"], became.get("last_turn_at")
    return RedriveView(
        id=row["action_id"],
        at=rfc3339_ms(row["at"]),
        actor=row["actor"],
        reason=row["reason"],
        rate_per_second=detail.get("ratePerSecond"),
        chosen=detail.get("chosen"),
        matched=detail.get("matched"),
        redriven=detail.get("redriven", 0),
        waiting=became.get("waiting", 0),
        delivered=became.get("delivered", 0),
        failed_again=became.get("failed_again", 0),
        skipped=became.get("skipped", 0),
        last_turn_at=None if last is None else rfc3339_ms(last),
    )
