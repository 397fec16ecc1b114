"""Who the recipients of an intent are, as far as a directory knows them or they said themselves."""

from collections.abc import Mapping

import msgspec

from carillon.domain.errors import BadIntent, DirectoryUnavailable
from carillon.domain.intents import Intent, Priority, Recipient
from carillon.domain.people import Found, NoSuchPerson, NotAnswered, Profile
from carillon.intake.quiet import quiet_until


def people(intent: Intent) -> list[str]:
    """Whom the directory must be asked about."""
    return [recipient.user_id for recipient in intent.recipients if recipient.user_id is not None]


def enrich(intent: Intent, found: Mapping[str, Found]) -> Intent:
    """The intent with what the directory said; raises BadIntent for a person nobody knows, DirectoryUnavailable."""
    return msgspec.structs.replace(
        intent, recipients=tuple(_known(recipient, found) for recipient in intent.recipients)
    )


def acquaint(intent: Intent, found: Mapping[str, Profile], now: float | None) -> Intent:
    """The intent with what its people said themselves; what the producer said goes before it.

    With `now`, in Unix seconds, quiet hours put off what is not urgent.
    """
    told = msgspec.structs.replace(intent, recipients=tuple(_acquainted(one, found) for one in intent.recipients))
    if now is None or intent.priority is Priority.HIGH or intent.synchronous:
        return told
    due = now if intent.scheduled_for_ms is None else max(now, intent.scheduled_for_ms / 1000)
    ends = [quiet_until(profile.quiet_hours, due) for profile in found.values() if profile.quiet_hours is not None]
    latest = max((end for end in ends if end is not None), default=None)
    return told if latest is None else msgspec.structs.replace(told, scheduled_for_ms=round(latest * 1000))


def _acquainted(recipient: Recipient, found: Mapping[str, Profile]) -> Recipient:
    profile = found.get(recipient.user_id or "")
    if profile is None:
        return recipient
    return msgspec.structs.replace(
        recipient,
        addresses=profile.addresses | recipient.addresses,
        locale=recipient.locale or profile.locale,
        refused=profile.refused,
    )


def _known(recipient: Recipient, found: Mapping[str, Found]) -> Recipient:
    if recipient.user_id is None:
        return recipient
    match found[recipient.user_id]:
        case Profile() as profile:
            return Recipient(
                ref=recipient.ref,
                user_id=recipient.user_id,
                addresses=recipient.addresses | profile.addresses,
                locale=profile.locale or recipient.locale,
                unreachable=recipient.unreachable | profile.unreachable,
            )
        case NoSuchPerson():
            raise BadIntent(
                "recipient_not_found", f"the directory knows no {recipient.user_id}", field="recipient_user_ids"
            )
        case NotAnswered(error):
            raise DirectoryUnavailable(error)
