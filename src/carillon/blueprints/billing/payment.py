"""The payment service: it charges, records and reports payments, and pays trials back."""

from collections.abc import Callable
from typing import Any

import msgspec

from carillon.blueprints.billing.domain import (
    REFUND_INITIATION,
    SUBSCRIPTION_UPDATE,
    TRIAL_REFUND,
    Outgoing,
    Payment,
    Refund,
    event_id_of,
    number,
    transaction_of,
    with_tenant,
)
from carillon.blueprints.billing.gateway import Gateway, Order
from carillon.blueprints.billing.messages import OutgoingRelay, QueueJob, amount_in, owner_of, text_in
from carillon.blueprints.billing.store import PaymentStore
from carillon.blueprints.billing.webhooks import Webhooks
from carillon.domain.errors import CarillonError
from carillon.domain.jobs import Permanent
from carillon.domain.ports import Clock
from carillon.faultpoint import faultpoint
from carillon.web.problems import rfc3339_ms


class Undelivered(CarillonError):
    """The subscription service did not accept a webhook; the queue's policy decides about the retry."""


class PaymentRules(msgspec.Struct, frozen=True, kw_only=True):
    """The timeout of webhooks to the subscription service."""

    webhook_seconds: float = 30.0
    immediate_seconds: float = 5.0


class Payments:
    """The work of the payment service."""

    def __init__(
        self,
        ledger: PaymentStore,
        gateway: Gateway,
        relay: OutgoingRelay,
        webhooks: Webhooks,
        *,
        clock: Clock,
        ids: Callable[[], str],
        rules: PaymentRules,
    ) -> None:
        self.ledger = ledger
        self._gateway = gateway
        self._relay = relay
        self._webhooks = webhooks
        self._clock = clock
        self._ids = ids
        self._rules = rules

    async def process(self, order: Order) -> tuple[Payment, bool]:
        """The payment, and whether this call made it; the same order is charged once."""
        known = await self._known(order)
        if known is not None:
            return known, False
        transaction_id = (
            self._ids()
            if order.idempotency_key is None
            else transaction_of(order.tenant_id, order.subscription_id, order.idempotency_key)
        )
        charged = await self._gateway.charge(transaction_id, order)
        faultpoint("after_charge")
        wall = self._clock.wall()
        payment = Payment(
            transaction_id=transaction_id,
            subscription_id=order.subscription_id,
            status=charged.status,
            amount=order.amount,
            currency=order.currency,
            action=order.action,
            event_id=event_id_of(transaction_id, wall),
            idempotency_key=order.idempotency_key,
            gateway_reference=charged.reference,
            message=charged.message,
            tenant_id=order.tenant_id,
        )
        payload = event_payload(payment, order.metadata, wall)
        messages = self._messages(payment, payload)
        written = await self.ledger.add_payment(payment, messages)
        if written is None:
            # Another call of the same order was faster: its event is reported, this one is dropped.
            return await self._known(order) or payment, False
        faultpoint("after_business_commit")
        await self._relay.bring(messages)
        self._webhooks.send_soon(payload, self._rules.immediate_seconds)
        return written, True

    async def _known(self, order: Order) -> Payment | None:
        if order.idempotency_key is None:
            return None
        return await self.ledger.payment_by_key(order.tenant_id, order.subscription_id, order.idempotency_key)

    def _messages(self, payment: Payment, payload: dict[str, Any]) -> list[Outgoing]:
        found = [
            Outgoing(
                queue=SUBSCRIPTION_UPDATE,
                message_id=self._ids(),
                action=payment.action,
                payload=payload,
                correlation_id=payment.subscription_id,
                idempotency_key=payment.event_id,
            )
        ]
        if payment.action == "trial" and payment.status == "success":
            refund = {
                "transaction_id": payment.transaction_id,
                "amount": number(payment.amount),
                "reason": TRIAL_REFUND,
            }
            found.append(
                Outgoing(
                    queue=REFUND_INITIATION,
                    message_id=self._ids(),
                    action="refund",
                    payload=with_tenant(refund, payment.tenant_id),
                    correlation_id=payment.subscription_id,
                    idempotency_key=f"refund:{payment.transaction_id}",
                )
            )
        return found

    async def process_webhook_processing(self, job: QueueJob) -> None:
        """`q:pay:subscription_update`: one call; every answer but 2xx is retried by the queue's policy."""
        answer = await self._webhooks.send(job.payload, self._rules.webhook_seconds)
        if not answer.ok:
            raise Undelivered(answer.error)

    async def process_refund_initiation(self, job: QueueJob) -> None:
        """`q:pay:refund_initiation`: once for each transaction, also one that is not known here."""
        transaction_id = text_in(job.payload, "transaction_id")
        paid = await self.ledger.payment(transaction_id)
        tenant_id = owner_of(job.payload, paid)
        if await self.ledger.refunds(transaction_id):
            return
        amount = amount_in(job.payload, "amount")
        if amount is None:
            if paid is None:
                raise Permanent(f"the payload names no amount, and transaction {transaction_id} is not known here")
            amount = paid.amount
        reference = await self._gateway.initiate_refund(transaction_id, amount, TRIAL_REFUND)
        faultpoint("after_refund")
        await self.ledger.add_refund(
            Refund(
                refund_id=self._ids(),
                transaction_id=transaction_id,
                amount=amount,
                reason=str(job.payload.get("reason") or TRIAL_REFUND),
                status="refunded",
                gateway_reference=reference,
                tenant_id=tenant_id,
            )
        )


def event_payload(payment: Payment, metadata: dict[str, Any], wall: float) -> dict[str, Any]:
    """The webhook's body for the subscription service."""
    payload = {
        "event_id": payment.event_id,
        "transaction_id": payment.transaction_id,
        "subscription_id": payment.subscription_id,
        "status": payment.status,
        "amount": number(payment.amount),
        "currency": payment.currency,
        "occurred_at": rfc3339_ms(wall * 1000),
        "metadata": metadata,
        "action": payment.action,
    }
    return with_tenant(payload, payment.tenant_id)
