"""The port to the company that moves the money: the mock gateway, and packages that bring another one."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from importlib.metadata import entry_points
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from carillon.blueprints.billing.domain import Result
from carillon.domain.errors import CarillonError, ConfigurationError
from carillon.domain.ports import Clock

ENTRY_POINTS = "carillon.gateways"
"""The group under which a package names its function `create(options, clock)`."""
MOCK = "mock"


class GatewayUnavailable(CarillonError):
    """The gateway gave no answer: ask again later, under the same transaction."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A payment to be charged."""

    subscription_id: str
    amount: Decimal
    currency: str
    action: str
    metadata: dict[str, Any]
    idempotency_key: str | None = None
    tenant_id: str | None = None


class Charged(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a charge."""

    status: Result
    reference: str
    """The gateway's own name for the charge."""
    message: str


@runtime_checkable
class Gateway(Protocol):
    """Charges and refunds.

    Carillon asks again after a crash or a lost answer. The transaction's id is the key: however often a transaction is
    charged or refunded, the money moves once, and every repeat gets the same answer.
    """

    async def charge(self, transaction_id: str, order: Order) -> Charged:
        """Charge once for this transaction; raises GatewayUnavailable where the result is not known."""
        ...

    async def initiate_refund(self, transaction_id: str, amount: Decimal, reason: str) -> str:
        """Pay back once for this transaction; returns the gateway's own name for the refund."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class GatewayRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the mock gateway answers."""

    payments: Literal["success", "failed", "unavailable"] = "success"
    refunds: Literal["success", "unavailable"] = "success"
    declined: Sequence[Decimal] = ()
    delay_seconds: float = 0.0


class MockGateway:
    """Gives the same transaction the same reference, however often it is charged, and charges it once."""

    def __init__(self, rules: GatewayRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    async def charge(self, transaction_id: str, order: Order) -> Charged:
        await self._clock.sleep(self._rules.delay_seconds)
        if self._rules.payments == "unavailable":
            raise GatewayUnavailable("the gateway does not answer (gateway.payments)")
        declined = self._rules.payments == "failed" or order.amount in self._rules.declined
        return Charged(
            status="failed" if declined else "success",
            reference=f"mock_{transaction_id}",
            message="The card was declined" if declined else "Payment processed",
        )

    async def initiate_refund(self, transaction_id: str, amount: Decimal, reason: str) -> str:
        await self._clock.sleep(self._rules.delay_seconds)
        if self._rules.refunds == "unavailable":
            raise GatewayUnavailable(f"the gateway does not refund {amount} ({reason}) now (gateway.refunds)")
        return f"mock_refund_{transaction_id}"

    async def aclose(self) -> None:
        """There is nothing to close."""


def installed(kind: str, options: Mapping[str, Any], clock: Clock) -> Gateway:
    """The gateway of a package under `carillon.gateways`; ConfigurationError says what is wrong with it."""
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if kind not in found:
        known = ", ".join(sorted({MOCK, *found}))
        raise ConfigurationError(f"gateway.kind: no gateway {kind[:64]!r} is installed; known: {known}")
    try:
        made = found[kind].load()(dict(options), clock)
    except Exception as error:
        # Somebody else's code gets what the settings say, and may raise anything, such as KeyError for an option.
        why = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"gateway.kind: {kind} was not made from gateway.options: {why}") from error
    if not isinstance(made, Gateway):
        raise ConfigurationError(f"gateway.kind: {kind} made a {type(made).__name__}, which is not a gateway")
    return made
