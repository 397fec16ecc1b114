"""The claim of a route that was leased at its birth: everything but the token is known from its enrolment."""

from carillon.domain.claims import Claim
from carillon.domain.notifications import Enrolment


def held_claim(
    enrolment: Enrolment, route_id: str, token: int, accepted_at_ms: int, place: object | None = None
) -> Claim:
    """As the ledger's `claim` would have answered."""
    notification = enrolment.notification
    route = next(route for route in enrolment.routes if route.route_id == route_id)
    return Claim(
        notification_id=notification.notification_id,
        route_id=route.route_id,
        token=token,
        channel=route.channel,
        recipient_ref=route.recipient_ref,
        lane=route.lane,
        provider=route.provider,
        policy=route.policy,
        attempt=1,
        attempts_before=0,
        max_attempts=route.max_attempts,
        age_seconds=0.0,
        notification_type=notification.notification_type,
        producer=notification.producer,
        payload_json=notification.payload_json,
        accepted_at_ms=accepted_at_ms,
        address=route.address,
        user_id=notification.user_id,
        tenant_id=notification.tenant_id,
        resolved_locale=route.resolved_locale,
        message_json=route.message_json,
        metadata_json=notification.metadata_json,
        request_id=notification.request_id,
        trace_id=notification.trace_id,
        audience_kind=notification.audience_kind,
        intent_key=notification.idempotency_key,
        place=place,
    )
