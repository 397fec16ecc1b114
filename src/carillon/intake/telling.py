"""Reports the routes that acceptance has skipped: nobody else would hear of them."""

from carillon.domain.events import NotificationStopped
from carillon.domain.gate_events import RouteGated, RouteSuppressed
from carillon.domain.intents import Intent
from carillon.domain.notifications import Accepted, Enrolment, GatedRoute, gated_routes
from carillon.domain.ports import Observer
from carillon.domain.timing import COLLAPSED, Stop


def tell_gated(observe: Observer, intent: Intent, accepted: Accepted, enrolment: Enrolment) -> tuple[GatedRoute, ...]:
    """Report each route that a gate has skipped, in the plan or in the ledger."""
    gated, notification_id = (*gated_routes(enrolment), *accepted.gated), accepted.notification_id
    for route in gated:
        observe(
            RouteGated(
                notification_id=notification_id,
                notification_type=intent.notification_type,
                producer=intent.producer,
                tenant_id=intent.tenant_id,
                route_id=route.route_id,
                channel=route.channel,
                gate=route.gate,
                because=route.because,
                category=intent.category,
                request_id=intent.request_id,
                trace_id=intent.trace_id,
            )
        )
    return gated


def tell_skipped(observe: Observer, intent: Intent, accepted: Accepted) -> None:
    """Report what acceptance skips in the ledger: suppressed routes and replaced notifications."""
    for notification_id in accepted.replaced:
        stop = Stop(COLLAPSED, accepted.notification_id)
        observe(NotificationStopped(notification_id=notification_id, gate=stop.gate, reason=stop.reason))
    for route in accepted.suppressed:
        observe(
            RouteSuppressed(
                notification_id=accepted.notification_id,
                notification_type=intent.notification_type,
                producer=intent.producer,
                tenant_id=intent.tenant_id,
                route_id=route.route_id,
                channel=route.channel,
                suppression_id=route.suppression.suppression_id,
                kind=route.suppression.kind,
                until_ms=route.suppression.until_ms,
                request_id=intent.request_id,
                trace_id=intent.trace_id,
            )
        )
