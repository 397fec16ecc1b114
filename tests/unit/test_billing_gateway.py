"""The mock gateway does as it is told, and what the payment service makes of one that does not answer."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest

from carillon.blueprints.billing import payment_api
from carillon.blueprints.billing.gateway import Charged, GatewayRules, GatewayUnavailable, MockGateway, Order
from carillon.blueprints.billing.messages import amount_in, text_in, whole_in
from carillon.blueprints.billing.payment import PaymentRules, Payments
from carillon.blueprints.billing.store import BillingStore
from carillon.domain.jobs import Permanent
from carillon.ledger.sqlite.ledger import SqliteLedger
from carillon.system import SystemClock
from carillon.web import WebSettings, app

CLOCK = SystemClock()


def order(amount: Decimal | int = 1) -> Order:
    return Order(subscription_id="s", amount=Decimal(amount), currency="USD", action="initial", metadata={})


def gateway(**rules: Any) -> MockGateway:
    return MockGateway(GatewayRules(**rules), CLOCK)


@pytest.mark.req("S3-59")
async def test_it_succeeds_unless_it_is_told_otherwise() -> None:
    assert await gateway().charge("t", order()) == Charged(
        status="success", reference="mock_t", message="Payment processed"
    )
    assert await gateway().initiate_refund("anything", Decimal(1), "trial_refund") == "mock_refund_anything"


@pytest.mark.parametrize(
    ("rules", "amount", "status"),
    [
        ({"payments": "failed"}, 1, "failed"),
        ({"declined": [Decimal("13.13")]}, Decimal("13.13"), "failed"),
        ({"declined": [Decimal("13.13")]}, Decimal("13.14"), "success"),
    ],
)
async def test_it_declines_what_it_shall(
    rules: dict[str, Any], amount: Decimal, status: Literal["success", "failed"]
) -> None:
    charged = await gateway(**rules).charge("t", order(amount))
    assert charged.status == status


async def test_it_can_be_away() -> None:
    with pytest.raises(GatewayUnavailable):
        await gateway(payments="unavailable").charge("t", order())
    with pytest.raises(GatewayUnavailable):
        await gateway(refunds="unavailable").initiate_refund("t", Decimal(1), "trial_refund")


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    opened = await SqliteLedger.open(tmp_path / "billing.db")
    await opened.migrate()
    yield opened
    await opened.aclose()


async def test_an_order_without_a_gateway_is_503_and_nothing_is_written_down(ledger: SqliteLedger) -> None:
    nobody: Any = None
    payments = Payments(
        *(BillingStore(ledger.engine), gateway(payments="unavailable"), nobody, nobody),
        clock=CLOCK,
        ids=lambda: "x",
        rules=PaymentRules(),
    )
    served = app(payment_api.endpoints(payments, "token"), WebSettings(docs=False))
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"amount":1}', "more_body": False}

    headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer token"), (b"idempotency-key", b"k")]
    scope = {"type": "http", "method": "POST", "path": payment_api.PATH, "query_string": b"subscription_id=s"}
    await served({**scope, "raw_path": payment_api.PATH.encode(), "headers": headers, "client": ("", 1)}, receive, send)
    problem = json.loads(said[1]["body"])
    assert (said[0]["status"], problem["error"]["code"]) == (503, "UNAVAILABLE")
    assert dict(said[0]["headers"])[b"retry-after"]
    assert await BillingStore(ledger.engine).payment_by_key(None, "s", "k") is None


@pytest.mark.parametrize("value", [None, "", True, 1.5, [], "x" * 256, "nul\x00"])
def test_what_is_no_name_is_permanent(value: object) -> None:
    with pytest.raises(Permanent, match="must name subscription_id"):
        text_in({"subscription_id": value}, "subscription_id")


@pytest.mark.parametrize("value", [True, "much", -1, [], {}, 0.00001, "1e99"])
def test_what_is_no_amount_is_permanent(value: object) -> None:
    with pytest.raises(Permanent, match="amount"):
        amount_in({"amount": value}, "amount")


@pytest.mark.parametrize("value", [None, True, 1.0, "1", 10**15])
def test_what_is_no_whole_number_is_permanent(value: object) -> None:
    with pytest.raises(Permanent, match="delta"):
        whole_in({"delta": value}, "delta")


def test_what_is_written_otherwise_and_means_the_same() -> None:
    assert (text_in({"id": 7}, "id"), amount_in({"amount": "9.90"}, "amount")) == ("7", Decimal("9.90"))
    assert amount_in({}, "amount") is None
