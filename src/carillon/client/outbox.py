"""What a transaction of the caller's own wants sent, and how it leaves once that transaction has committed.

The row is written by the caller's connection, so that it is there if and only if the rest is. Whoever relays may die at
any moment and be several: the row's id is the idempotency key, and Carillon hears it once.
"""

import threading
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from carillon.client.asking import LARGEST_BATCH, Item
from carillon.client.clients import Client
from carillon.client.errors import Rejected
from carillon.domain.errors import CarillonError

TABLE = "carillon_outbox"
_read = msgspec.json.Decoder(Item).decode


class Row(NamedTuple):
    """One notification that is to leave."""

    id: str
    body: str


class Told(NamedTuple):
    """What became of a row: the notification it is now, or why it will never be one."""

    id: str
    notification_id: str | None
    refused: str | None


class Store(Protocol):
    """Where the rows are; one transaction each call."""

    def waiting(self, limit: int) -> Sequence[Row]:
        """The oldest rows that have not left."""
        ...

    def tell(self, told: Sequence[Told]) -> None:
        """Write down what became of rows; they are not offered again."""
        ...


def row(template_key: str, about: dict[str, Any]) -> Row:
    """The row of one notification; raises TypeError for what Item does not know."""
    item = Item(template_key=template_key, **about)
    return Row(item.idempotency_key or str(uuid.uuid4()), msgspec.json.encode(item).decode())


class Relay:
    """Carries what waits to Carillon, oldest first."""

    def __init__(self, store: Store, client: Client, batch: int = 100) -> None:
        self._store = store
        self._client = client
        self._batch = min(batch, LARGEST_BATCH)

    def run_once(self) -> int:
        """One batch; how many rows it was. Raises Unreachable while Carillon is away: the rows stay."""
        rows = self._store.waiting(self._batch)
        if rows:
            self._store.tell(self._carry(rows))
        return len(rows)

    def run(self, stop: threading.Event, poll_seconds: float = 1.0) -> None:
        """Until told to stop; a Carillon that is away is asked again."""
        while not stop.is_set():
            try:
                carried = self.run_once()
            except CarillonError:
                carried = 0
            if carried < self._batch:
                stop.wait(poll_seconds)

    def _carry(self, rows: Sequence[Row]) -> list[Told]:
        items = [msgspec.structs.replace(_read(each.body), idempotency_key=each.id) for each in rows]
        try:
            answers = self._client.send_many(items)
        except Rejected as error:
            # None of them was accepted; the problem tells of each as an answer would.
            results = error.problem.get("results")
            if not isinstance(results, list) or len(results) != len(rows):
                raise
            return [Told(each.id, None, str(result["error"])) for each, result in zip(rows, results, strict=True)]
        return [
            Told(each.id, answer.notification_id, None if answer.error is None else _why(answer.error))
            for each, answer in zip(rows, answers, strict=True)
            if answer.error is None or answer.error.code != "UNAVAILABLE"
        ]


def _why(error: Any) -> str:  # noqa: ANN401 - a refusal of the wire
    return f"{error.code}: {error.message}"
