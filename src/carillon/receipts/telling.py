"""Receipts as events, for the log and the numbers."""

from collections.abc import Iterable

from carillon.domain.events import ReceiptTaken
from carillon.domain.ports import Observer
from carillon.domain.receipts import Amended


def tell(amended: Iterable[Amended], observer: Observer) -> None:
    """Say what each receipt did; never an address."""
    for each in amended:
        receipt = each.receipt
        observer(
            ReceiptTaken(
                provider=receipt.provider,
                kind=str(receipt.kind),
                effect=str(each.effect),
                provider_message_id=receipt.provider_message_id,
                notification_id=each.notification_id,
                route_id=each.route_id,
                classification=receipt.classification,
                reason=receipt.reason,
            )
        )
