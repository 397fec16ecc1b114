"""Every gateway keeps the promises of the port, and a gateway that breaks one is found out."""

from decimal import Decimal
from typing import ClassVar

import pytest

from carillon.blueprints.billing.gateway import Charged, Gateway, GatewayRules, MockGateway, Order
from carillon.blueprints.billing.gateway_contract import GatewayContract
from carillon.system import SystemClock


class RememberingGateway:
    """One that moves money in a list; with `forgets` it charges a repeat again."""

    def __init__(self, moved: dict[str, str], *, forgets: bool = False) -> None:
        self._moved = moved
        self._forgets = forgets

    async def charge(self, transaction_id: str, order: Order) -> Charged:
        if order.amount == Decimal(13):
            return Charged(status="failed", reference=f"no-{transaction_id}", message="unlucky")
        return Charged(status="success", reference=self._move(transaction_id), message="done")

    async def initiate_refund(self, transaction_id: str, amount: Decimal, reason: str) -> str:
        return self._move(f"back/{transaction_id}/{amount}/{reason}")

    async def aclose(self) -> None:
        """Nothing is open."""

    def _move(self, name: str) -> str:
        if self._forgets or name not in self._moved:
            self._moved[name] = f"moved-{len(self._moved)}-{self._forgets and id(object())}"
            if self._forgets:
                self._moved[f"{name}/{len(self._moved)}"] = name
        return self._moved[name]


@pytest.mark.req("X3-3")
class TestMockGateway(GatewayContract):
    declined = Decimal("13.13")

    def make(self) -> Gateway:
        return MockGateway(GatewayRules(declined=[Decimal("13.13")]), SystemClock())


@pytest.mark.req("X3-3")
class TestOwnGateway(GatewayContract):
    declined = Decimal(13)
    moved: ClassVar[dict[str, str]] = {}

    def make(self) -> Gateway:
        return RememberingGateway(self.moved)


@pytest.mark.req("X3-3")
def test_control_a_gateway_that_charges_a_repeat_again_is_found_out() -> None:
    class Forgetful(GatewayContract):
        moved: ClassVar[dict[str, str]] = {}

        def make(self) -> Gateway:
            return RememberingGateway(self.moved, forgets=True)

    with pytest.raises(AssertionError, match="another answer"):
        Forgetful().test_the_same_transaction_is_charged_once()
    with pytest.raises(AssertionError, match="another answer"):
        Forgetful().test_the_same_transaction_is_refunded_once()
