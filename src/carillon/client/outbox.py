"""A transactional outbox: the caller's transaction writes a row, and a relay sends it after the commit.

The caller's own connection writes the row, so the row exists exactly when the rest of the transaction does. Several
relays may run and any of them may die: the row's id is the idempotency key, so Carillon accepts each row once.
"""

import logging
import threading
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from carillon.client.clients import Client
from carillon.client.wire import LARGEST_BATCH, Item
from carillon.domain.errors import CarillonError
from carillon.version import old_names

TABLE = "carillon_outbox"
_LATER = "UNAVAILABLE"
"""The code of an item that could not be written now: its row stays."""
_log = logging.getLogger(__name__)
_FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(Item)}
_read = msgspec.json.Decoder(dict[str, Any]).decode


class OutboxRow(NamedTuple):
    """One notification to send."""

    id: str
    body: str


class Told(NamedTuple):
    """The result of a row: the id of its notification, or why Carillon refused it for good."""

    id: str
    notification_id: str | None
    refused: str | None


class Store(Protocol):
    """Where the rows are kept; every call is one transaction."""

    def waiting(self, limit: int) -> Sequence[OutboxRow]:
        """The oldest rows that were not sent yet."""
        ...

    def tell(self, told: Sequence[Told]) -> None:
        """Save the results of rows; these rows are not returned again."""
        ...


def row(template_key: str, about: dict[str, Any]) -> OutboxRow:
    """The row of one notification; raises TypeError for a field that Item does not have."""
    item = Item(template_key=template_key, **about)
    return OutboxRow(item.idempotency_key or str(uuid.uuid4()), msgspec.json.encode(item).decode())


class OutboxRelay:
    """Sends waiting rows to Carillon, oldest first."""

    def __init__(self, store: Store, client: Client, batch: int = 100) -> None:
        self._store = store
        self._client = client
        self._batch = min(batch, LARGEST_BATCH)

    def run_once(self) -> int:
        """Send some rows and return their number; raises Unreachable or Rejected, and keeps them, while none can go."""
        rows = self._store.waiting(self._batch)
        told = self._carry(rows) if rows else []
        if told:
            self._store.tell(told)
        return len(told)

    def run(self, stop: threading.Event, poll_seconds: float = 1.0) -> None:
        """Send batches until `stop` is set; retries while Carillon does not answer or refuses, and logs why."""
        trouble = ""
        while not stop.is_set():
            try:
                carried, found = self.run_once(), ""
            except CarillonError as error:
                carried, found = 0, str(error)
            if found and found != trouble:
                _log.warning("rows wait in the outbox: %s", found)
            elif trouble and not found:
                _log.warning("rows leave the outbox again")
            trouble = found
            if carried < self._batch:
                stop.wait(poll_seconds)

    def _carry(self, rows: Sequence[OutboxRow]) -> list[Told]:
        told: list[Told] = []
        known: list[OutboxRow] = []
        items: list[Item] = []
        for each in rows:
            try:
                items.append(_item(each))
                known.append(each)
            except (msgspec.DecodeError, TypeError) as error:
                told.append(Told(each.id, None, f"VALIDATION_ERROR: the row holds no notification: {error}"))
        answers = self._client.send_many(items)
        return told + [
            Told(each.id, answer.notification_id, None if answer.error is None else _why(answer.error))
            for each, answer in zip(known, answers, strict=True)
            if answer.error is None or answer.error.code != _LATER
        ]


def _item(held: OutboxRow) -> Item:
    """The notification as it was asked for: Carillon says what is wrong with a value, and this row alone is refused."""
    said = {_FIELDS[name]: value for name, value in _read(held.body).items() if name in _FIELDS}
    return Item(**{**said, "idempotency_key": held.id})


def _why(error: Any) -> str:  # noqa: ANN401 - a refusal of the wire
    return f"{error.code}: {error.message}"


__getattr__ = old_names(__name__, {"Relay": OutboxRelay, "Row": OutboxRow})
