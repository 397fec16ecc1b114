"""Alerts: what the sinks learn about a dead letter."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

_EXHAUSTED = re.compile(r"Retry exhausted after [0-9]+ attempts\. Last error: ")


class ProviderAttempt(msgspec.Struct, frozen=True, rename="camel"):
    """The last message id and error of one provider."""

    provider: str
    message_id: str | None
    error: str | None


class Alert(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One terminal failure, in the fields of the listo blueprint."""

    alert_id: int
    notification_id: str
    tenant_id: str | None
    user_id: str | None
    channel: str
    template_key: str
    attempt_count: int
    last_error: str
    failed_at: str
    provider_attempts: list[ProviderAttempt]
    event_type: str = "NotificationFailed"


class DueAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that is due, and which sinks have confirmed it."""

    alert: Alert
    tries: int
    """Grows with each lease of the alert, which distinguishes the current sender from an earlier one."""
    told: tuple[str, ...] = ()
    """The sinks that have confirmed the alert."""


class PostponedAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that a sink has not confirmed yet."""

    alert_id: int
    tries: int
    told: tuple[str, ...]
    seconds: float


class ProviderEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt through a provider, or a receipt from it."""

    provider: str
    at_ms: float
    message_id: str | None = None
    error: str | None = None


def provider_attempts(happened: Iterable[ProviderEvent]) -> list[ProviderAttempt]:
    """The last message id and last error of each provider, in the order of the first calls."""
    found: dict[str, ProviderAttempt] = {}
    for each in sorted(happened, key=lambda one: one.at_ms):
        before = found.get(each.provider, ProviderAttempt(each.provider, None, None))
        found[each.provider] = ProviderAttempt(
            each.provider, each.message_id or before.message_id, each.error or before.error
        )
    return list(found.values())


def in_order(alert: Alert, chains: Mapping[str, Sequence[str]]) -> Alert:
    """The alert with its providers in the order of failover; those that settings no longer name come last."""
    chain = list(chains.get(alert.channel, ()))
    ordered = sorted(
        alert.provider_attempts,
        key=lambda each: chain.index(each.provider) if each.provider in chain else len(chain),
    )
    return msgspec.structs.replace(alert, provider_attempts=ordered)


def bare_error(text: str) -> str:
    """The last provider's error, without the ledger's sentence around it."""
    return _EXHAUSTED.sub("", text, count=1) if _EXHAUSTED.match(text) else text


class AlertOutbox(Protocol):
    """The outbox of alerts, written in the commit of the dead letter."""

    async def due_alerts(self, limit: int, lease_seconds: float) -> list[DueAlert]:
        """Lease due alerts; an alert that is not confirmed within its lease becomes due again."""
        ...

    async def told(self, alert_ids: Sequence[int]) -> None:
        """Remove alerts that every sink has confirmed."""
        ...

    async def postpone(self, postponed: Sequence[PostponedAlert]) -> None:
        """Store the sinks that have confirmed, and try the others later."""
        ...
