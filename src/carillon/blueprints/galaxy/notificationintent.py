"""What game services import to publish notification intents: one constructor for each type.

Each constructor checks what it is given by the consumer's own rules and raises BadIntent. Publishing is one plain XADD
without trimming and without a retry of ours. redis-py's own clients retry unless they are told not to:

    from redis import Redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=2, socket_connect_timeout=2)

A repeat under the same `idempotency_key` is harmless, so a producer that wants to may publish again itself. A
publication that failed leaves people untold and nothing else: it must not undo the business change it speaks of,
which is what `publish_best_effort` is for.
"""

from collections.abc import Iterable

from carillon.blueprints.galaxy.producing import (
    STREAM,
    AsyncStreamClient,
    Metadata,
    NotificationIntent,
    StreamClient,
    build,
    publish,
    publish_async,
    publish_best_effort,
    publish_best_effort_async,
    thirty_days_after,
)
from carillon.domain.errors import BadIntent

__all__ = [
    "STREAM",
    "AsyncStreamClient",
    "BadIntent",
    "Metadata",
    "NotificationIntent",
    "StreamClient",
    "build",
    "game_finished",
    "game_generation_failed",
    "game_turn_ready",
    "geo_review_recommended",
    "lobby_application_submitted_private",
    "lobby_application_submitted_public",
    "lobby_invite_created",
    "lobby_invite_expired",
    "lobby_invite_redeemed",
    "lobby_membership_approved",
    "lobby_membership_blocked",
    "lobby_membership_rejected",
    "lobby_race_name_registered",
    "lobby_race_name_registration_denied",
    "lobby_race_name_registration_eligible",
    "lobby_runtime_paused_after_start",
    "publish",
    "publish_async",
    "publish_best_effort",
    "publish_best_effort_async",
    "thirty_days_after",
]


def geo_review_recommended(
    metadata: Metadata,
    *,
    user_id: str,
    user_email: str,
    observed_country: str,
    usual_connection_country: str,
    review_reason: str,
) -> NotificationIntent:
    """An account's observed country differs from its usual one; Geo Profile tells the administrators."""
    payload = {
        "user_id": user_id,
        "user_email": user_email,
        "observed_country": observed_country,
        "usual_connection_country": usual_connection_country,
        "review_reason": review_reason,
    }
    return build("geo.review_recommended", metadata, payload)


def game_turn_ready(
    metadata: Metadata, recipient_user_ids: Iterable[str], *, game_id: str, game_name: str, turn_number: int
) -> NotificationIntent:
    """A turn has been generated; Game Master tells the active participants."""
    payload = {"game_id": game_id, "game_name": game_name, "turn_number": turn_number}
    return build("game.turn.ready", metadata, payload, recipient_user_ids)


def game_finished(
    metadata: Metadata, recipient_user_ids: Iterable[str], *, game_id: str, game_name: str, final_turn_number: int
) -> NotificationIntent:
    """A game has ended; Game Master tells the active participants."""
    payload = {"game_id": game_id, "game_name": game_name, "final_turn_number": final_turn_number}
    return build("game.finished", metadata, payload, recipient_user_ids)


def game_generation_failed(
    metadata: Metadata, *, game_id: str, game_name: str, failure_reason: str
) -> NotificationIntent:
    """A turn could not be generated; Game Master tells the administrators."""
    payload = {"game_id": game_id, "game_name": game_name, "failure_reason": failure_reason}
    return build("game.generation_failed", metadata, payload)


def lobby_runtime_paused_after_start(metadata: Metadata, *, game_id: str, game_name: str) -> NotificationIntent:
    """A game was paused because its runtime did not come up; Game Lobby tells the administrators."""
    payload = {"game_id": game_id, "game_name": game_name}
    return build("lobby.runtime_paused_after_start", metadata, payload)


def lobby_application_submitted_private(
    metadata: Metadata,
    recipient_user_ids: Iterable[str],
    *,
    game_id: str,
    game_name: str,
    applicant_user_id: str,
    applicant_name: str,
) -> NotificationIntent:
    """Somebody applied to a private game; Game Lobby tells its owner."""
    payload = {
        "game_id": game_id,
        "game_name": game_name,
        "applicant_user_id": applicant_user_id,
        "applicant_name": applicant_name,
    }
    return build("lobby.application.submitted", metadata, payload, recipient_user_ids)


def lobby_application_submitted_public(
    metadata: Metadata, *, game_id: str, game_name: str, applicant_user_id: str, applicant_name: str
) -> NotificationIntent:
    """Somebody applied to a public game; Game Lobby tells the administrators."""
    payload = {
        "game_id": game_id,
        "game_name": game_name,
        "applicant_user_id": applicant_user_id,
        "applicant_name": applicant_name,
    }
    return build("lobby.application.submitted", metadata, payload)


def lobby_membership_approved(
    metadata: Metadata, recipient_user_ids: Iterable[str], *, game_id: str, game_name: str
) -> NotificationIntent:
    """An application was approved; Game Lobby tells the applicant."""
    payload = {"game_id": game_id, "game_name": game_name}
    return build("lobby.membership.approved", metadata, payload, recipient_user_ids)


def lobby_membership_rejected(
    metadata: Metadata, recipient_user_ids: Iterable[str], *, game_id: str, game_name: str
) -> NotificationIntent:
    """An application was rejected; Game Lobby tells the applicant."""
    payload = {"game_id": game_id, "game_name": game_name}
    return build("lobby.membership.rejected", metadata, payload, recipient_user_ids)


def lobby_membership_blocked(
    metadata: Metadata,
    recipient_user_ids: Iterable[str],
    *,
    game_id: str,
    game_name: str,
    membership_user_id: str,
    membership_user_name: str,
    reason: str,
) -> NotificationIntent:
    """A member was blocked; Game Lobby tells the owner of the private game."""
    payload = {
        "game_id": game_id,
        "game_name": game_name,
        "membership_user_id": membership_user_id,
        "membership_user_name": membership_user_name,
        "reason": reason,
    }
    return build("lobby.membership.blocked", metadata, payload, recipient_user_ids)


def lobby_invite_created(
    metadata: Metadata,
    recipient_user_ids: Iterable[str],
    *,
    game_id: str,
    game_name: str,
    inviter_user_id: str,
    inviter_name: str,
) -> NotificationIntent:
    """An invite was made; Game Lobby tells the invited user, by user id and never by address."""
    payload = {
        "game_id": game_id,
        "game_name": game_name,
        "inviter_user_id": inviter_user_id,
        "inviter_name": inviter_name,
    }
    return build("lobby.invite.created", metadata, payload, recipient_user_ids)


def lobby_invite_redeemed(
    metadata: Metadata,
    recipient_user_ids: Iterable[str],
    *,
    game_id: str,
    game_name: str,
    invitee_user_id: str,
    invitee_name: str,
) -> NotificationIntent:
    """An invite was redeemed; Game Lobby tells the owner of the private game."""
    payload = {
        "game_id": game_id,
        "game_name": game_name,
        "invitee_user_id": invitee_user_id,
        "invitee_name": invitee_name,
    }
    return build("lobby.invite.redeemed", metadata, payload, recipient_user_ids)


def lobby_invite_expired(
    metadata: Metadata,
    recipient_user_ids: Iterable[str],
    *,
    game_id: str,
    game_name: str,
    invitee_user_id: str,
    invitee_name: str,
) -> NotificationIntent:
    """An invite expired; Game Lobby tells the owner of the private game, by email only."""
    payload = {
        "game_id": game_id,
        "game_name": game_name,
        "invitee_user_id": invitee_user_id,
        "invitee_name": invitee_name,
    }
    return build("lobby.invite.expired", metadata, payload, recipient_user_ids)


def lobby_race_name_registration_eligible(
    metadata: Metadata,
    recipient_user_ids: Iterable[str],
    *,
    game_id: str,
    game_name: str,
    race_name: str,
    eligible_until_ms: int | None = None,
) -> NotificationIntent:
    """A member may register a race name for 30 days; Game Lobby publishes at `game_finished`.

    Whether a member is eligible or denied is the producer's capability evaluation. Without `eligible_until_ms` the
    window is counted from `occurred_at_ms`.
    """
    until = thirty_days_after(metadata.occurred_at_ms) if eligible_until_ms is None else eligible_until_ms
    payload = {"game_id": game_id, "game_name": game_name, "race_name": race_name, "eligible_until_ms": until}
    return build("lobby.race_name.registration_eligible", metadata, payload, recipient_user_ids)


def lobby_race_name_registered(
    metadata: Metadata, recipient_user_ids: Iterable[str], *, race_name: str
) -> NotificationIntent:
    """A race name is registered; Game Lobby publishes on a successful `lobby.race_name.register` commit."""
    payload = {"race_name": race_name}
    return build("lobby.race_name.registered", metadata, payload, recipient_user_ids)


def lobby_race_name_registration_denied(
    metadata: Metadata, recipient_user_ids: Iterable[str], *, game_id: str, game_name: str, race_name: str, reason: str
) -> NotificationIntent:
    """A member may not register a race name; Game Lobby publishes at `game_finished`, by email only."""
    payload = {"game_id": game_id, "game_name": game_name, "race_name": race_name, "reason": reason}
    return build("lobby.race_name.registration_denied", metadata, payload, recipient_user_ids)
