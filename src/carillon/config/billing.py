"""The settings of the two billing services and of the gateway that moves the money."""

from typing import Any, ClassVar, Literal

from carillon.blueprints.billing.domain import LifeRules, Plan
from carillon.config.sections import Bounds, Section


class Billing(Section, frozen=True):
    """How the two services reach and verify each other, and the plans on sale."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "tolerance_seconds": (1, 86_400),
        "webhook_timeout_seconds": (0.001, 3600),
        "immediate_timeout_seconds": (0.001, 3600),
        "payment_timeout_seconds": (0.001, 3600),
        "outbox_poll_seconds": (0.001, 3600),
    }

    signing_secret: str = ""
    tolerance_seconds: float = 300.0
    """The greatest difference between a webhook's time and ours."""
    subscription_url: str = ""
    """Empty means this process, which must then be the subscription service too."""
    payment_url: str = ""
    """Empty means this process, which must then be the payment service too."""
    service_token: str = ""
    """The token that the services show each other; empty derives one from the signing secret."""
    webhook_timeout_seconds: float = 30.0
    immediate_timeout_seconds: float = 5.0
    """The timeout of the call right after a payment; the queued webhook makes sure of the delivery."""
    payment_timeout_seconds: float = 30.0
    outbox_poll_seconds: float = 1.0
    """How often the relay looks for committed messages that are not in their queue yet."""
    plans: dict[str, Plan] = {}
    """By plan id; `*` is every other plan."""
    life: LifeRules = LifeRules()
    """Renewals, grace and ends."""


class GatewaySettings(Section, frozen=True):
    """The gateway that moves the money, and the behaviour of the mock gateway."""

    bounds: ClassVar[dict[str, Bounds]] = {
        "delay_seconds": (0, 3600),
    }

    kind: str = "mock"
    """The mock gateway, or the name of an installed one."""
    options: dict[str, Any] = {}
    """What an installed gateway is made with; the mock gateway has the fields below."""

    payments: Literal["success", "failed", "unavailable"] = "success"
    refunds: Literal["success", "unavailable"] = "success"
    declined_amounts: list[float] = []
    """Amounts that are always declined."""
    delay_seconds: float = 0.0
