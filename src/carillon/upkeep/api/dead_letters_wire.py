"""The JSON that operators read and write about dead letters."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from carillon.upkeep.api.notifications_wire import ChannelWord, Id, Page, PageSize, Reason, Text
from carillon.web.paging import Cursor
from carillon.web.problems import rfc3339_ms


class DeadLetterView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One dead letter, and its reason."""

    notification_id: str
    route_id: str
    channel: str
    attempt_count: int
    max_attempts: int
    classification: str
    error: str
    hint: str
    failed_at: str


class DeadLetterPage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One page of dead letters, newest first."""

    items: list[DeadLetterView]
    total_count: int | None
    """None behind a cursor: only pages are counted."""
    page_number: int | None
    page_size: int
    total_pages: int | None
    next_cursor: str | None
    """Goes on after the last item; None at the end."""


class DeadLetterQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Which dead letters to list."""

    page: Page = 1
    page_size: PageSize = 20
    cursor: Cursor | UnsetType = UNSET
    channel: ChannelWord | UnsetType = UNSET
    classification: Id | UnsetType = UNSET
    notification_id: Id | UnsetType = UNSET


class RouteKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The name of one route."""

    notification_id: Id
    route_id: Text


class RedriveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters get a fresh budget, with which provider, if not their last one, and why."""

    items: Annotated[list[RouteKey], Meta(min_length=1, max_length=500)]
    provider: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")] | None = None
    reason: Reason | None = None


class Redriven(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many of the named routes were dead letters and are tried again."""

    redriven: int
    suppressed: int = 0
    """How many stay dead letters, because their address is suppressed; left out where there are none."""


def dead_letter_view(row: Mapping[str, Any]) -> DeadLetterView:
    """One dead letter."""
    return DeadLetterView(
        notification_id=row["notification_id"],
        route_id=row["route_id"],
        channel=row["channel"],
        attempt_count=row["final_attempt_count"],
        max_attempts=row["max_attempts"],
        classification=row["failure_classification"],
        error=row["failure_message"],
        hint=row["recovery_hint"],
        failed_at=rfc3339_ms(row["created_at"]),
    )
