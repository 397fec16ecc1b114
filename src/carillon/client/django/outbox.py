"""Writes outbox rows inside Django's transactions, and reads them for the relay."""

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from carillon.client.django.models import Wish
from carillon.client.outbox import OutboxRow, Told, row


def send(template_key: str, /, using: str | None = None, **about: Any) -> str:  # noqa: ANN401 - fields of Item
    """Write the row of a notification in the current transaction; returns its key. The relay sends it later."""
    new = row(template_key, about)
    Wish.objects.using(using).create(id=new.id, body=new.body)
    return new.id


class DjangoStore:
    """The rows of one database."""

    def __init__(self, using: str | None = None) -> None:
        self._using = using

    def waiting(self, limit: int) -> Sequence[OutboxRow]:
        """The oldest rows that were not sent yet."""
        found = Wish.objects.using(self._using).filter(sent_at=None).order_by("created_at", "id")[:limit]
        return [OutboxRow(wish.id, wish.body) for wish in found]

    def tell(self, told: Sequence[Told]) -> None:
        """Save the results of rows."""
        with transaction.atomic(using=self._using):
            for one in told:
                Wish.objects.using(self._using).filter(id=one.id).update(
                    sent_at=timezone.now(), notification_id=one.notification_id, refused=one.refused
                )
