"""The endpoints of the payment service."""

import hmac
import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from carillon.blueprints.billing.domain import DECIMALS, Payment, Refund, money, number
from carillon.blueprints.billing.gateway import GatewayUnavailable, Order
from carillon.blueprints.billing.payment import Payments
from carillon.web import (
    ADMINISTRATORS,
    About,
    Answer,
    Callers,
    Endpoint,
    Found,
    Header,
    Owned,
    Problem,
    Reply,
    Request,
)
from carillon.web.auth import Unauthorized
from carillon.web.problems import rfc3339_ms, unavailable

PATH = "/v1/payments/internal/process"
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_EXAMPLE = "0198d2a4-5c1e-7d30-9a57-3f0c2b9e4d11"
_SCHEME = b"bearer"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"\A[^\x00-\x1f\x7f]+\Z")]
Number = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Digits = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,12}(\.[0-9]{1,4})?\Z")]
Tenant = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._:-]{1,64}\Z")]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"\A[\x21-\x7e]+\Z")]


class ProcessQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The subscription that pays."""

    subscription_id: Name


class ProcessBody(msgspec.Struct, frozen=True, kw_only=True):
    """The order; further fields, such as card numbers, are neither read nor stored."""

    amount: Number | Digits = 0
    """0 only checks whether payment is possible."""
    currency: Word = "USD"
    action: Word | None = None
    trial: bool = False
    renewal: bool = False
    old_plan_id: Name | int | None = None
    new_plan_id: Name | int | None = None
    tenant_id: Tenant | None = None
    """The subscription's."""


class PaymentView(msgspec.Struct, frozen=True, kw_only=True):
    """A processed payment; `status` says whether it succeeded."""

    transaction_id: str
    subscription_id: str
    status: str
    amount: float
    currency: str
    action: str
    event_id: str
    gateway_reference: str | None
    message: str | None
    processed_at: str
    tenant_id: str | UnsetType = UNSET


class RefundQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The refunded transaction."""

    transaction_id: Name


class RefundView(msgspec.Struct, frozen=True, kw_only=True):
    """Money that went back."""

    refund_id: str
    transaction_id: str
    amount: float
    reason: str
    status: str
    gateway_reference: str | None
    created_at: str
    tenant_id: str | UnsetType = UNSET


class RefundList(msgspec.Struct, frozen=True, kw_only=True):
    """None or one: a transaction is refunded once."""

    refunds: list[RefundView]


class _PaymentHandlers:
    def __init__(self, payments: Payments, service_token: str) -> None:
        self._payments = payments
        self._token = service_token.encode()

    async def process(self, request: Request) -> Reply:
        query = request.query(ProcessQuery)
        body = request.json(ProcessBody)
        amount = money(body.amount)
        if amount is None:
            raise Problem("VALIDATION_ERROR", f"amount: {body.amount} has more than {DECIMALS} decimals")
        order = Order(
            subscription_id=query.subscription_id,
            amount=amount,
            currency=body.currency,
            action=_action(body),
            metadata=_metadata(body),
            idempotency_key=_key(request),
            tenant_id=body.tenant_id,
        )
        try:
            payment, made = await self._payments.process(order)
        except GatewayUnavailable as error:
            raise unavailable(f"{error}; nothing was charged twice, ask again with the same Idempotency-Key") from None
        if not made and (payment.amount, payment.currency, payment.action) != (amount, order.currency, order.action):
            raise Problem("IDEMPOTENCY_CONFLICT", "this Idempotency-Key was used for another order; choose a new one")
        return Reply(201, _view(payment), {} if made else {"Idempotent-Replayed": "true"})

    async def show(self, request: Request) -> Reply:
        return Reply(200, _view(request.found))

    async def refunds(self, request: Request) -> Reply:
        asked = request.query(RefundQuery).transaction_id
        found = await self._payments.ledger.refunds(asked, **request.reach.filters())
        return Reply(200, RefundList(refunds=[_refund(each) for each in found]))

    async def find(self, transaction_id: str, _tenant_id: str | None) -> Found | None:
        found = await self._payments.ledger.payment(transaction_id)
        return None if found is None else Found(found, found.tenant_id, None)

    def check_token(self, request: Request) -> None:
        scheme, _, shown = request.headers.get(b"authorization", b"").partition(b" ")
        needed = "the service token (SERVICE_TOKEN) is needed"
        if scheme.lower() != _SCHEME:
            raise Unauthorized("malformed" if scheme else "missing", needed)
        if not hmac.compare_digest(shown.strip(), self._token):
            raise Unauthorized("forged", needed)


def _action(body: ProcessBody) -> str:
    flagged = "renewal" if body.renewal else "trial" if body.trial else "initial"
    return body.action or flagged


def _metadata(body: ProcessBody) -> dict[str, Any]:
    plans = {"old_plan_id": body.old_plan_id, "new_plan_id": body.new_plan_id}
    return {
        "trial": body.trial or body.action == "trial",
        "renewal": body.renewal or body.action == "renewal",
        **{name: value for name, value in plans.items() if value is not None},
    }


def _key(request: Request) -> str | None:
    key = request.header(b"idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise Problem("VALIDATION_ERROR", "Idempotency-Key has 1 to 255 visible characters")
    return key


def _view(payment: Payment) -> PaymentView:
    return PaymentView(
        transaction_id=payment.transaction_id,
        subscription_id=payment.subscription_id,
        status=payment.status,
        amount=number(payment.amount),
        currency=payment.currency,
        action=payment.action,
        event_id=payment.event_id,
        gateway_reference=payment.gateway_reference,
        message=payment.message,
        processed_at=rfc3339_ms(payment.created_at),
        tenant_id=payment.tenant_id or UNSET,
    )


def _refund(refund: Refund) -> RefundView:
    return RefundView(
        refund_id=refund.refund_id,
        transaction_id=refund.transaction_id,
        amount=number(refund.amount),
        reason=refund.reason,
        status=refund.status,
        gateway_reference=refund.gateway_reference,
        created_at=rfc3339_ms(refund.created_at),
        tenant_id=refund.tenant_id or UNSET,
    )


def endpoints(payments: Payments, service_token: str) -> list[Endpoint]:
    """Process, show, refunds."""
    handlers = _PaymentHandlers(payments, service_token)
    return [_process(handlers), *_looks(handlers)]


def _process(handlers: _PaymentHandlers) -> Endpoint:
    return Endpoint(
        method="POST",
        path=PATH,
        call=handlers.process,
        name="processPayment",
        summary="Ask for the money of a subscription",
        description="For services, which show `SERVICE_TOKEN` as their bearer token. "
        "The same `Idempotency-Key` is charged once and answered the same.",
        tag="Billing",
        query=ProcessQuery,
        body=ProcessBody,
        body_optional=True,
        body_examples={"trial": {"amount": 9.99, "currency": "USD", "action": "trial", "trial": True}},
        headers=(Header("Idempotency-Key", "Names the order", r"^[\x21-\x7e]{1,255}$"),),
        answers=(
            Answer(
                status=201,
                description="Processed; its result is told to the subscription service",
                kind=PaymentView,
                headers=(Header("Idempotent-Replayed", "true when this order was processed before"),),
            ),
        ),
        problems=("UNAUTHORIZED", "IDEMPOTENCY_CONFLICT", "UNAVAILABLE"),
        about=About(callers=Callers.PROOF, head_proof=handlers.check_token),
    )


def _looks(handlers: _PaymentHandlers) -> list[Endpoint]:
    one = Owned(param="transaction_id", find=handlers.find, missing="there is no payment with this transaction id")
    return [
        Endpoint(
            method="GET",
            path="/v1/payments/{transaction_id}",
            call=handlers.show,
            name="showPayment",
            summary="Show one payment",
            tag="Billing",
            about=About(callers=Callers.ADMINISTRATORS, owned=one),
            path_examples={"transaction_id": _EXAMPLE},
            answers=(Answer(status=200, description="The payment", kind=PaymentView),),
        ),
        Endpoint(
            method="GET",
            path="/v1/refunds",
            call=handlers.refunds,
            name="listRefunds",
            summary="List the refunds of a transaction",
            tag="Billing",
            about=ADMINISTRATORS,
            query=RefundQuery,
            answers=(Answer(status=200, description="Its refunds", kind=RefundList),),
        ),
    ]
