"""The blueprint local behind each broker's door, for what holds for every way into the program."""

import asyncio
import json
import uuid
from abc import abstractmethod
from typing import ClassVar

from proton import Message

from tests.support import tables
from tests.support.client import WELCOME
from tests.support.every_blueprint import Given, Local, World
from tests.support.process import Program

QUEUE = "requests"
BODY = json.dumps(WELCOME, separators=(",", ":")).encode()


class LocalQueue(Local):
    """What the doors of brokers have in common: a message waits for the program, and its key is the record's."""

    needs_doors = False

    def give(self, program: Program | None) -> Given:
        del program
        key = f"good-{uuid.uuid4()}"
        self.publish(key)
        return {"key": key}

    @abstractmethod
    def publish(self, key: str) -> None:
        """Put a message with this id into the broker's queue."""

    def until_doors_read(self, given: Given) -> None:
        self.until(lambda: bool(self._statuses(given)), f"{given} to be read")

    def arrived(self, given: Given) -> bool:
        return self._statuses(given) == {"published"}

    def _statuses(self, given: Given) -> set[str]:
        about = f"WHERE idempotency_key = '{given['key']}'"
        found = f"SELECT status FROM records JOIN routes USING (notification_id) {about}"  # noqa: S608 - a key of ours
        return {row["status"] for row in asyncio.run(tables.read(self.own, found))}


class LocalRabbitMQ(LocalQueue):
    """A queue of RabbitMQ."""

    found_ill: ClassVar = {"ledger": "Ledger", "rabbitmq": "RabbitMQ"}

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "CARILLON_RABBITMQ_DOOR__QUEUE": QUEUE}

    def publish(self, key: str) -> None:
        # The door declares its queue a moment after the program is ready.
        self.world.broker.declare(QUEUE)
        self.world.broker.publish_with(BODY, queue=QUEUE, message_id=key)


class LocalServiceBus(LocalQueue):
    """A queue of Azure Service Bus."""

    found_ill: ClassVar = {"ledger": "Ledger", "servicebus": "Service Bus"}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        # Nobody but its owner makes a queue there.
        world.bus.create(QUEUE)

    def environment(self) -> dict[str, str]:
        return {
            **super().environment(),
            "SERVICEBUS_CONNECTION_STRING": self.world.bus.connection_at(self.world.bus_gate.port),
            "CARILLON_SERVICEBUS_DOOR__QUEUE": QUEUE,
        }

    def publish(self, key: str) -> None:
        self.world.bus.publish(QUEUE, Message(body=BODY, inferred=True, id=key))


DOORS: dict[str, type[LocalQueue]] = {"local by rabbitmq": LocalRabbitMQ, "local by servicebus": LocalServiceBus}
