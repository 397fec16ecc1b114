"""What every gateway promises, as tests: subclass `GatewayContract` in your own suite and make your gateway there."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import TypeVar

from carillon.blueprints.billing.gateway import Charged, Gateway, Order

T = TypeVar("T")


class GatewayContract:
    """Needs a gateway that reaches a place where charging is free, such as a vendor's sandbox."""

    accepted = Decimal("9.99")
    """An amount that the gateway charges."""
    declined: Decimal | None = None
    """An amount that the gateway declines; None where it declines nothing."""

    def make(self) -> Gateway:
        """A new gateway, as a process makes one at its start."""
        raise NotImplementedError

    def test_a_charge_says_what_became_of_it(self) -> None:
        charged = self._ask(lambda gateway: gateway.charge(_transaction(), self._order(self.accepted)))
        _expect(charged.status == "success", f"{self.accepted} was not charged: {charged.message}")
        _expect(bool(charged.reference), "the gateway's own name for the charge is needed to find it again")

    def test_the_same_transaction_is_charged_once(self) -> None:
        transaction_id = _transaction()

        async def twice(gateway: Gateway) -> list[Charged]:
            order = self._order(self.accepted)
            return [await gateway.charge(transaction_id, order) for _ in range(2)]

        first, second = self._ask(twice)
        # A process that died after the charge asks again from a new one.
        third = self._ask(lambda gateway: gateway.charge(transaction_id, self._order(self.accepted)))
        _expect(first == second == third, "a repeat of a transaction has another answer")

    def test_two_transactions_are_two_charges(self) -> None:
        found = [
            self._ask(lambda gateway: gateway.charge(_transaction(), self._order(self.accepted))) for _ in range(2)
        ]
        _expect(found[0].reference != found[1].reference, "two transactions have one reference")

    def test_a_declined_charge_is_an_answer_and_no_error(self) -> None:
        if self.declined is None:
            return
        amount = self.declined
        charged = self._ask(lambda gateway: gateway.charge(_transaction(), self._order(amount)))
        _expect(charged.status == "failed" and bool(charged.message), f"{amount} was not declined with a reason")

    def test_the_same_transaction_is_refunded_once(self) -> None:
        transaction_id = _transaction()
        self._ask(lambda gateway: gateway.charge(transaction_id, self._order(self.accepted)))
        names = [
            self._ask(lambda gateway: gateway.initiate_refund(transaction_id, self.accepted, "trial_refund"))
            for _ in range(2)
        ]
        _expect(bool(names[0]), "the gateway's own name for the refund is needed to find it again")
        _expect(names[0] == names[1], "a repeat of a refund has another answer")

    def _ask(self, call: Callable[[Gateway], Awaitable[T]]) -> T:
        async def asked() -> T:
            gateway = self.make()
            try:
                return await call(gateway)
            finally:
                await gateway.aclose()

        return asyncio.run(asked())

    def _order(self, amount: Decimal) -> Order:
        return Order(subscription_id="contract", amount=amount, currency="USD", action="initial", metadata={})


def _transaction() -> str:
    return str(uuid.uuid4())


def _expect(holds: bool, text: str) -> None:  # noqa: FBT001 - what a test asserts
    if not holds:
        raise AssertionError(text)
