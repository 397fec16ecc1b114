"""The sections of the payment and the subscription service."""

from typing import ClassVar, Literal

from carillon.blueprints.billing.domain import Plan
from carillon.config.section import Bounds, Section


class Billing(Section, frozen=True):
    """How the two services find and believe each other, and what is sold."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "tolerance_seconds": (1, 86_400),
        "webhook_timeout_seconds": (0.001, 3600),
        "immediate_timeout_seconds": (0.001, 3600),
        "payment_timeout_seconds": (0.001, 3600),
        "outbox_poll_seconds": (0.001, 3600),
    }

    signing_secret: str = ""
    tolerance_seconds: float = 300.0
    """How far the time of a webhook may be from ours, either way."""
    subscription_url: str = ""
    """Without it the payment service tells this very process, which must then be the subscription service too."""
    payment_url: str = ""
    """The same the other way round."""
    service_token: str = ""
    """What services show each other; without it a value made from the signing secret, which both know."""
    webhook_timeout_seconds: float = 30.0
    immediate_timeout_seconds: float = 5.0
    """Of the one call right after a payment; the queued one makes sure."""
    payment_timeout_seconds: float = 30.0
    outbox_poll_seconds: float = 1.0
    """How often messages are looked for that were committed and did not reach their queue."""
    plans: dict[str, Plan] = {}
    """By plan id; `*` is every other plan."""


class Gateway(Section, frozen=True):
    """What the mock gateway does."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "delay_seconds": (0, 3600),
    }

    payments: Literal["success", "failed", "unavailable"] = "success"
    refunds: Literal["success", "unavailable"] = "success"
    declined_amounts: list[float] = []
    """Amounts that are declined whatever else is said here."""
    delay_seconds: float = 0.0
