"""A payment gateway that moves no money and does as it is told."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal

import msgspec

from carillon.blueprints.billing.domain import Result
from carillon.domain.errors import CarillonError
from carillon.domain.ports import Clock


class GatewayUnavailable(CarillonError):
    """The gateway gave no answer: ask again later, under the same transaction."""


class GatewayRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the mock gateway answers."""

    payments: Literal["success", "failed", "unavailable"] = "success"
    refunds: Literal["success", "unavailable"] = "success"
    declined: Sequence[Decimal] = ()
    delay_seconds: float = 0.0


class Charged(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a charge."""

    status: Result
    reference: str
    message: str


class MockGateway:
    """The same transaction gets the same reference, however often it is asked for: asking again does nothing twice."""

    def __init__(self, rules: GatewayRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    async def charge(self, transaction_id: str, amount: Decimal) -> Charged:
        await self._clock.sleep(self._rules.delay_seconds)
        if self._rules.payments == "unavailable":
            raise GatewayUnavailable("the gateway does not answer (gateway.payments)")
        declined = self._rules.payments == "failed" or amount in self._rules.declined
        return Charged(
            status="failed" if declined else "success",
            reference=f"mock_{transaction_id}",
            message="The card was declined" if declined else "Payment processed",
        )

    async def initiate_refund(self, transaction_id: str, amount: Decimal, reason: str) -> str:
        """The gateway's own name for the refund."""
        await self._clock.sleep(self._rules.delay_seconds)
        if self._rules.refunds == "unavailable":
            raise GatewayUnavailable(f"the gateway does not refund {amount} ({reason}) now (gateway.refunds)")
        return f"mock_refund_{transaction_id}"
