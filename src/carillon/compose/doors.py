"""The doors of message brokers as parts: each reads one queue into the ledger, if the settings name one."""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from carillon.compose.intake import IntakePart
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import DoctorFinding, Loop, Part, PartEnd, Role
from carillon.compose.process import Process
from carillon.config.sections import servicebus_address
from carillon.domain.errors import ConfigurationError
from carillon.doors.messages import QueueWire
from carillon.system import new_id
from carillon.upkeep.health import Check, answers_at, degraded

if TYPE_CHECKING:
    from carillon.doors.rabbitmq.door import RabbitDoor
    from carillon.doors.servicebus.door import ServiceBusDoor


class BrokerDoorPart(Part):
    """What the doors of brokers have in common; a subclass knows its settings, its client and its broker's address."""

    role = Role.DOORS
    name: str
    """The section of the settings, and the name of the loop."""
    extra: str

    def __init__(self, process: Process, ledger: LedgerPart, intake: IntakePart) -> None:
        self._process = process
        self._ledger = ledger
        self._intake = intake
        self.door: RabbitDoor | ServiceBusDoor | None = None

    def refuse(self) -> None:
        self._guarded(None)

    async def open(self, stack: AsyncExitStack) -> None:
        del stack
        self.door = self._guarded(self._intake)

    def run(self) -> Mapping[str, Loop]:
        return {} if self.door is None else {self.name: self.door.run}

    async def stop(self, ending: PartEnd) -> None:
        if self.door is not None:
            self.door.stop()
            await ending.finish(seconds=ending.deadline.left())

    def checks(self) -> Mapping[str, Check]:
        # Without its broker the process still accepts requests over HTTP: degraded, not down.
        check = self.name.removesuffix("_door")
        return {} if self.door is None else {check: degraded(answers_at(self._address()))}

    async def examine(self) -> list[DoctorFinding]:
        queue = self._queue()
        if queue is None:
            return []
        self.refuse()
        return [DoctorFinding(self.title, "ok", f"{queue}: {await self._look()}")]

    def _guarded(self, intake: IntakePart | None) -> "RabbitDoor | ServiceBusDoor | None":
        """Build the door; without intake only check the settings."""
        if self._queue() is None:
            return None
        try:
            return self._build(intake)
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"{self.name}.queue: needs the package {error.name!r}; pip install 'carillon[{self.extra}]'"
            ) from None

    def _wire(self) -> QueueWire:
        broker = self.name.removesuffix("_door")
        return QueueWire(broker, self._queue() or "", self._process.settings.http.max_body_bytes, new_id)

    @abstractmethod
    def _queue(self) -> str | None:
        """The queue of the settings; without one the part does nothing."""

    @abstractmethod
    def _address(self) -> str:
        """Where the broker listens."""

    @abstractmethod
    async def _look(self) -> str:
        """What the doctor says about the queue."""

    @abstractmethod
    def _build(self, intake: IntakePart | None) -> "RabbitDoor | ServiceBusDoor | None":
        """Check the settings and build the door; its client is an extra and slow to load, so it is imported here."""


class RabbitmqDoorPart(BrokerDoorPart):
    """Reads a RabbitMQ queue into the ledger, if the settings name one."""

    title = "RabbitMQ"
    name = "rabbitmq_door"
    extra = "rabbitmq"

    def _queue(self) -> str | None:
        return self._process.settings.rabbitmq_door.queue

    def _address(self) -> str:
        return self._process.settings.rabbitmq_door.url or ""

    async def _look(self) -> str:
        from carillon.ledger.rabbitmq.connection import depths  # noqa: PLC0415 - its client is an extra

        settings = self._process.settings.rabbitmq_door
        if settings.url is None or settings.queue is None:
            raise ConfigurationError("rabbitmq_door.url: is missing")
        (depth,) = (await depths(settings.url, [settings.queue])).values()
        return "not there yet" if depth is None else f"{depth} waiting"

    def _build(self, intake: IntakePart | None) -> "RabbitDoor | None":
        settings = self._process.settings.rabbitmq_door
        if settings.queue is None or settings.url is None:
            raise ConfigurationError(
                "rabbitmq_door.url: rabbitmq_door.queue names a queue; set its broker (RABBITMQ_URL)"
            )
        from carillon.doors.rabbitmq.door import RabbitDoor, RabbitDoorRules  # noqa: PLC0415 - as said

        if intake is None:
            return None
        return RabbitDoor(
            rules=RabbitDoorRules(
                url=settings.url, queue=settings.queue, queue_type=settings.queue_type, prefetch=settings.prefetch
            ),
            wire=self._wire(),
            acceptor=intake.intake,
            ledger=self._ledger.ledger,
            clock=self._process.clock,
            observer=self._process.observe,
        )


class ServiceBusDoorPart(BrokerDoorPart):
    """Reads a queue of Azure Service Bus into the ledger, if the settings name one."""

    title = "Service Bus"
    name = "servicebus_door"
    extra = "servicebus"

    def _queue(self) -> str | None:
        return self._process.settings.servicebus_door.queue

    def _address(self) -> str:
        return servicebus_address(self._process.settings.servicebus_door.connection_string) or ""

    async def _look(self) -> str:
        from carillon.doors.servicebus.door import waiting  # noqa: PLC0415 - its client is an extra

        settings = self._process.settings.servicebus_door
        found = await waiting(settings.connection_string, settings.queue or "")
        return "messages wait" if found else "empty"

    def _build(self, intake: IntakePart | None) -> "ServiceBusDoor | None":
        settings = self._process.settings.servicebus_door
        if settings.queue is None or not settings.connection_string:
            raise ConfigurationError(
                "servicebus_door.connection_string: servicebus_door.queue names a queue; set the string of its "
                "namespace (SERVICEBUS_CONNECTION_STRING)"
            )
        from carillon import servicebus  # noqa: PLC0415 - as said
        from carillon.doors.servicebus.door import ServiceBusDoor, ServiceBusDoorRules  # noqa: PLC0415 - as said

        servicebus.checked("servicebus_door.connection_string", settings.connection_string)
        if intake is None:
            return None
        return ServiceBusDoor(
            rules=ServiceBusDoorRules(
                connection_string=settings.connection_string, queue=settings.queue, prefetch=settings.prefetch
            ),
            wire=self._wire(),
            acceptor=intake.intake,
            ledger=self._ledger.ledger,
            clock=self._process.clock,
            observer=self._process.observe,
        )
