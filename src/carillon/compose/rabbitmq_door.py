"""A RabbitMQ queue in front of the ledger, where the settings name one."""

from typing import TYPE_CHECKING

from carillon.compose.process import Process
from carillon.compose.surface import Opened
from carillon.domain.errors import ConfigurationError
from carillon.system import new_id

if TYPE_CHECKING:
    from carillon.doors.rabbitmq.door import RabbitDoor


def door(process: Process, opened: Opened) -> "RabbitDoor | None":
    """The door that reads the queue into the ledger."""
    settings = process.settings.rabbitmq_door
    if settings.queue is None:
        return None
    if settings.url is None:
        raise ConfigurationError("rabbitmq_door.url: rabbitmq_door.queue names a queue; say where it is (RABBITMQ_URL)")
    try:
        # Here, because the client is an extra and slow to load.
        from carillon.doors.rabbitmq.door import QueueRules, RabbitDoor  # noqa: PLC0415 - as said
        from carillon.doors.rabbitmq.wire import QueueWire  # noqa: PLC0415 - as said
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"rabbitmq_door.queue: needs the package {error.name!r}; pip install 'carillon[rabbitmq]'"
        ) from None
    rules = QueueRules(
        url=settings.url, queue=settings.queue, queue_type=settings.queue_type, prefetch=settings.prefetch
    )
    return RabbitDoor(
        rules=rules,
        wire=QueueWire(rules.queue, process.settings.http.max_body_bytes, new_id),
        acceptor=opened.intake,
        ledger=opened.ledger,
        clock=process.clock,
        observer=process.observe,
    )
