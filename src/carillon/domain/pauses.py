"""Pauses: an operator stops calls to a provider or an endpoint, of a lane, a template, a tenant or a queue."""

from typing import Literal

import msgspec

Scope = Literal["provider", "endpoint", "lane", "template", "tenant", "queue"]
SOONEST_SECONDS, LATEST_SECONDS = 1.0, 120.0
"""How soon a route that a pause holds is looked at again."""


class Paused(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who has paused what, when and why."""

    what: str
    """As people read it: `provider twilio`."""
    by: str
    reason: str
    since_ms: int
    """Unix milliseconds, by the clock of the process that was asked."""

    def __str__(self) -> str:
        return f"{self.what} is paused by {self.by}: {self.reason}"


def look_again_in(paused: Paused, now_ms: float, share: float) -> float:
    """After how many seconds a held route is looked at again; `share` between 0 and 1 spreads the routes.

    A pause of a few seconds costs a few seconds more; routes that wait for hours are not claimed all the time.
    """
    waited = max(now_ms - paused.since_ms, 0.0) / 1000
    return min(max(waited / 2, SOONEST_SECONDS), LATEST_SECONDS) * (0.5 + share / 2)
