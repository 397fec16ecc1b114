"""Intents of every type of the galaxy blueprint, and claims on their routes, each with only its point spelt out."""

from typing import Any

from carillon.blueprints.galaxy.catalogue import NotificationType, TypeCatalogue, read
from carillon.domain.claims import Claim
from carillon.domain.intents import canonical

OCCURRED = 1775121700000
ENTRY_ID = "1775121700000-0"
USERS = ["user-1", "user-2"]
CATALOGUE: TypeCatalogue = read()
TYPES = sorted(CATALOGUE.types)
PUSHED = [name for name in TYPES if CATALOGUE.types[name].push is not None]
WAYS = [(name, kind) for name in TYPES for kind in CATALOGUE.types[name].audiences]
"""Every type with every audience it may have: fifteen types, sixteen ways."""

_PAYLOADS: dict[str, Any] = {
    "user_id": "user-7",
    "user_email": "pilot@example.com",
    "observed_country": "DE",
    "usual_connection_country": "FR",
    "review_reason": "country changed twice in a day",
    "game_id": "game-123",
    "game_name": "Nebula Clash",
    "turn_number": 54,
    "final_turn_number": 61,
    "failure_reason": "engine ended with code 3",
    "applicant_user_id": "user-8",
    "applicant_name": "Ada Östling",
    "membership_user_id": "user-9",
    "membership_user_name": "Grace",
    "reason": "abandoned three turns",
    "inviter_user_id": "user-10",
    "inviter_name": "Edsger",
    "invitee_user_id": "user-11",
    "invitee_name": "Barbara",
    "race_name": "Zorgon",
    "eligible_until_ms": OCCURRED + 30 * 86_400_000,
}


def payload_for(notification_type: str, entry: NotificationType | None = None) -> dict[str, Any]:
    """Exactly the fields the type requires."""
    return {name: _PAYLOADS[name] for name in (entry or CATALOGUE.types[notification_type]).required}


def fields_for(notification_type: str, kind: str | None = None, /, **changes: str | None) -> dict[str, str]:
    """The fields of an acceptable entry; a change to None leaves the field out."""
    entry = CATALOGUE.types[notification_type]
    audience = kind or next(iter(entry.audiences))
    fields: dict[str, str | None] = {
        "notification_type": notification_type,
        "producer": entry.producer,
        "audience_kind": audience,
        "idempotency_key": f"{entry.producer}:{notification_type}:1",
        "occurred_at_ms": str(OCCURRED),
        "payload_json": canonical(payload_for(notification_type)),
        "recipient_user_ids_json": canonical(USERS) if audience == "user" else None,
    }
    return {name: value for name, value in (fields | changes).items() if value is not None}


def claim_for(notification_type: str, channel: str = "push", /, **changes: Any) -> Claim:
    plain: dict[str, Any] = {
        "notification_id": ENTRY_ID,
        "route_id": f"{channel}:user:user-1",
        "token": 1,
        "channel": channel,
        "recipient_ref": "user:user-1",
        "lane": 2,
        "provider": channel,
        "policy": f"*/{channel}",
        "attempt": 1,
        "attempts_before": 0,
        "max_attempts": 3,
        "age_seconds": 0.0,
        "notification_type": notification_type,
        "producer": CATALOGUE.types[notification_type].producer,
        "payload_json": canonical(payload_for(notification_type)),
        "accepted_at_ms": 1775121700123,
        "address": "pilot@example.com",
        "resolved_locale": "en",
    }
    return Claim(**(plain | changes))
