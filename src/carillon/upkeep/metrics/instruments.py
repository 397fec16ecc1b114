"""The metrics and their exported names."""

from typing import Final

import msgspec


class Instrument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The exported form of one metric: its name, its attributes, and their names and values."""

    name: str
    unit: str = "1"
    description: str = ""
    attributes: dict[str, str] | None = None
    """The exported name of each attribute; None exports all unchanged, and missing attributes are summed over."""
    values: dict[str, dict[str, str]] = {}
    """For an attribute, the exported value of each of our values."""
    scale: float = 1.0


# The metrics and their attributes. No attribute is an id, an address or a key, and none may become one.
ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "intents": ("outcome", "notification_type", "producer", "audience_kind"),
    "attempts": ("channel", "provider", "outcome", "verdict", "notification_type"),
    "retries": ("channel", "provider", "classification"),
    "dead_letters": ("channel", "provider", "classification"),
    "suppressed": ("channel", "kind"),
    "gated": ("channel", "gate"),
    "suppressions": ("channel", "kind", "source", "provider"),
    "stopped": ("gate",),
    "leases_lost": ("provider",),
    "leases_reset": (),
    "breaker_changes": ("provider", "before", "after"),
    "endpoint_breaker_changes": ("provider", "before", "after"),
    "endpoints_disabled": ("provider",),
    "endpoints_enabled": ("provider",),
    "slowed": ("provider",),
    "troubles": ("where",),
    "pruned": ("kind",),
    "history": (),
    "malformed": ("failure_code",),
    "lookups": ("result",),
    "door_stops": ("door",),
    "stream_trims": (),
    "rehomed": ("channel",),
    "tickets_lost": (),
    "receipts": ("provider", "kind", "effect"),
    "engagement": ("kind", "provider"),
    "callbacks_refused": ("vendor",),
    "alerts": ("sink", "outcome"),
    "attempt_duration": ("channel", "provider", "outcome"),
    "due": (),
    "open": (),
    "oldest_due": (),
    "oldest_unread": (),
    "streams": (),
    "waits": ("reason", "provider"),
}
GAUGES: Final = ("due", "open", "oldest_due", "oldest_unread", "streams", "waits")
DURATION: Final = "attempt_duration"

# A blueprint whose document fixes other names hands its own table, or a part of one, to Metrics.
CARILLON: Final[dict[str, Instrument]] = {
    "intents": Instrument("carillon.intents", "{intent}", "Intents by what became of them"),
    "attempts": Instrument("carillon.attempts", "{attempt}", "Calls of providers"),
    "retries": Instrument("carillon.retries", "{retry}", "Attempts that will be repeated"),
    "dead_letters": Instrument("carillon.dead_letters", "{route}", "Routes given up"),
    "suppressed": Instrument(
        "carillon.routes.suppressed", "{route}", "Routes skipped when they were accepted: their address is suppressed"
    ),
    "suppressions": Instrument("carillon.suppressions", "{suppression}", "Suppressions that messages have caused"),
    "gated": Instrument("carillon.routes.gated", "{route}", "Routes that a gate has skipped"),
    "stopped": Instrument("carillon.notifications.stopped", "{notification}", "Replaced or cancelled before their end"),
    "leases_lost": Instrument("carillon.leases.lost", "{lease}", "Leases lost to another worker"),
    "leases_reset": Instrument("carillon.leases.reset", "{lease}", "Leases of live streams that ran out"),
    "breaker_changes": Instrument("carillon.breaker.changes", "{change}", "Breakers going from state to state"),
    "endpoint_breaker_changes": Instrument(
        "carillon.endpoint.breaker.changes", "{change}", "Breakers of endpoints going from state to state"
    ),
    "endpoints_disabled": Instrument(
        "carillon.endpoints.disabled", "{endpoint}", "Endpoints disabled after failing for days"
    ),
    "endpoints_enabled": Instrument("carillon.endpoints.enabled", "{endpoint}", "Disabled endpoints enabled again"),
    "slowed": Instrument("carillon.rate.slowed", "{answer}", "Answers that calls come too fast, which slowed a fleet"),
    "troubles": Instrument("carillon.troubles", "{failure}", "Failures of our own loops"),
    "malformed": Instrument("carillon.malformed", "{intent}", "Intents that could not become a notification"),
    "lookups": Instrument("carillon.lookups", "{lookup}", "Questions to the directory of people"),
    "door_stops": Instrument("carillon.door.stops", "{stop}", "Doors that stopped before an entry"),
    "stream_trims": Instrument("carillon.stream.trims", "{trim}", "Streams trimmed before they were read"),
    "rehomed": Instrument("carillon.rehomed", "{route}", "Waiting routes that lost their provider or lane"),
    "tickets_lost": Instrument(
        "carillon.tickets.lost", "{route}", "Waiting routes that stood in no queue and were put back"
    ),
    "pruned": Instrument("carillon.pruned", "{row}", "Rows removed by retention"),
    "history": Instrument("carillon.history.endings", "{route}", "Endings copied to where history is kept"),
    "receipts": Instrument("carillon.receipts", "{receipt}", "Vendors' later words by what they did"),
    "engagement": Instrument("carillon.engagement", "{event}", "Messages opened and links clicked"),
    "callbacks_refused": Instrument(
        "carillon.callbacks.refused", "{callback}", "Callbacks that were not believed or not understood"
    ),
    "alerts": Instrument("carillon.alerts", "{alert}", "Alerts told, and put off because a sink did not confirm"),
    "attempt_duration": Instrument("carillon.attempt.duration", "s", "How long providers took"),
    "due": Instrument("carillon.routes.due", "{route}", "Routes that could be claimed now"),
    "open": Instrument("carillon.routes.open", "{route}", "Routes that are not terminal"),
    "oldest_due": Instrument("carillon.routes.oldest_due_age", "s", "How long the oldest due route has waited"),
    "oldest_unread": Instrument(
        "carillon.stream.oldest_unread_age", "s", "How long the oldest unread entry has waited"
    ),
    "streams": Instrument("carillon.streams.open", "{stream}", "Live streams that are being read"),
    "waits": Instrument(
        "carillon.waits", "{target}", "Groups, endpoints, providers and tenants whose routes wait, by reason"
    ),
}
