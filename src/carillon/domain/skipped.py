"""What a gate skipped and may be evaluated again: which gates, and what they say by now."""

from collections.abc import Mapping
from typing import Any

import msgspec

from carillon.domain.consent import GATE, Categories, Wishes
from carillon.domain.digests import THROTTLE, ThrottleRule
from carillon.domain.suppressions import CLASSIFICATION
from carillon.domain.timing import LATEST_MS

GATES = (CLASSIFICATION, GATE, THROTTLE)
"""Only these: what was replaced, cancelled, told in a digest, has expired or was reached elsewhere stays skipped."""
_read_wishes = msgspec.json.Decoder(Wishes).decode


class SkippedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to evaluate skipped routes again: through which gates, through which lane, and how fast."""

    categories: Categories
    unqueued: tuple[int, ...] = ()
    """Lanes that no worker claims from."""
    instead: int = 1
    """The lane to which routes of the `unqueued` lanes move."""
    rate: float | None = None
    """Routes per second; None makes all of them due at once."""
    began_ms: float = 0.0
    done: int = 0
    """How many routes earlier pages have redriven."""
    dry_run: bool = False

    def due_ms(self, place: int) -> float:
        """When the route at this place of the page has its turn."""
        if self.rate is None:
            return self.began_ms
        return min(self.began_ms + (self.done + place) / self.rate * 1000, LATEST_MS)

    def holds(self, row: Mapping[str, Any]) -> str | None:
        """The gate that holds the route still; None if it may go, throttles aside."""
        if row["suppressed"]:
            return CLASSIFICATION
        category = None if row["category"] is None else self.categories.find(row["category"], row["tenant_id"])
        if category is None:
            return None
        # The claim asks the same of people who have chosen; here those who chose nothing are asked too.
        wishes = Wishes() if row["wishes_json"] is None else _read_wishes(row["wishes_json"])
        return None if wishes.refusal(category, row["channel"]) is None else GATE

    def throttle(self, row: Mapping[str, Any]) -> ThrottleRule | None:
        """The throttle of the route's category."""
        category = None if row["category"] is None else self.categories.find(row["category"], row["tenant_id"])
        return None if category is None else category.throttle


class SkippedPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a redrive of skipped routes."""

    matched: dict[str, int] = {}
    """By the gate that had skipped them."""
    held: dict[str, int] = {}
    """Those that stay, by the gate that holds them now."""
    redriven: int = 0
    action_id: int | None = None
    after: tuple[int, str, str] | None = None
    """Where the next page begins; None after the last."""
