"""Events of the gates before a send: routes that are skipped, and addresses that become suppressed."""

import msgspec

from carillon.domain.suppressions import Suppression


class RouteSuppressed(msgspec.Struct, frozen=True, tag="route_suppressed", kw_only=True):
    """A route was skipped when it was accepted, because its address is suppressed."""

    notification_id: str
    notification_type: str
    producer: str
    tenant_id: str | None
    route_id: str
    channel: str
    suppression_id: int
    kind: str
    until_ms: int | None
    """When the suppression ends; None is never."""
    request_id: str | None = None
    trace_id: str | None = None


class RouteGated(msgspec.Struct, frozen=True, tag="route_gated", kw_only=True):
    """A route was skipped when it was accepted, by a gate other than a suppression."""

    notification_id: str
    notification_type: str
    producer: str
    tenant_id: str | None
    route_id: str
    channel: str
    gate: str
    because: str
    category: str | None = None
    request_id: str | None = None
    trace_id: str | None = None


class AddressSuppressed(msgspec.Struct, frozen=True, tag="address_suppressed", kw_only=True):
    """A message caused a suppression: later routes of its tenant to the same address are skipped."""

    channel: str
    kind: str
    source: str
    reason: str
    tenant_id: str | None
    """None holds for every tenant."""
    seconds: float | None
    """For how long; None is for ever."""
    provider: str
    notification_id: str | None = None
    route_id: str | None = None


def address_suppressed(
    caused: Suppression, provider: str, notification_id: str | None, route_id: str | None
) -> AddressSuppressed:
    """The event of a suppression that a message caused; an event holds no address."""
    return AddressSuppressed(
        channel=caused.channel,
        kind=caused.kind,
        source=caused.source,
        reason=caused.reason,
        tenant_id=caused.tenant_id or None,
        seconds=caused.seconds,
        provider=provider,
        notification_id=notification_id,
        route_id=route_id,
    )
