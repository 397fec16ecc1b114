"""A RabbitMQ queue in front of the ledger, where the settings name one."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from carillon.compose.intake import IntakePart
from carillon.compose.ledger import LedgerPart
from carillon.compose.part import Ending, Finding, Loop, Part, Role
from carillon.compose.process import Process
from carillon.domain.errors import ConfigurationError
from carillon.system import new_id
from carillon.upkeep.health import Check, answers_at, degraded

if TYPE_CHECKING:
    from carillon.doors.rabbitmq.door import RabbitDoor


class RabbitmqDoorPart(Part):
    """Reads the queue into the ledger, where the settings name one."""

    title = "RabbitMQ"
    role = Role.DOORS

    def __init__(self, process: Process, ledger: LedgerPart, intake: IntakePart) -> None:
        self._process = process
        self._ledger = ledger
        self._intake = intake
        self.door: RabbitDoor | None = None

    def refuse(self) -> None:
        self._build(None)

    async def open(self, stack: AsyncExitStack) -> None:
        del stack
        self.door = self._build(self._intake)

    def run(self) -> Mapping[str, Loop]:
        return {} if self.door is None else {"rabbitmq_door": self.door.run}

    async def stop(self, ending: Ending) -> None:
        if self.door is not None:
            self.door.stop()
            await ending.finish(seconds=ending.deadline.left())

    def checks(self) -> Mapping[str, Check]:
        url = self._process.settings.rabbitmq_door.url
        # Without the broker the process still takes requests over HTTP.
        return {} if self.door is None or url is None else {"rabbitmq": degraded(answers_at(url))}

    async def examine(self) -> list[Finding]:
        settings = self._process.settings.rabbitmq_door
        if settings.queue is None or settings.url is None:
            return []
        try:
            from carillon.ledger.rabbitmq.line import depths  # noqa: PLC0415 - its client is an extra
        except ModuleNotFoundError as error:
            return [Finding("RabbitMQ", "ill", f"needs the package {error.name!r}; pip install 'carillon[rabbitmq]'")]
        (depth,) = (await depths(settings.url, [settings.queue])).values()
        said = "not there yet" if depth is None else f"{depth} waiting"
        return [Finding("RabbitMQ", "ok", f"{settings.queue}: {said}")]

    def _build(self, intake: IntakePart | None) -> "RabbitDoor | None":
        """Without intake the settings are checked and nothing is built."""
        settings = self._process.settings.rabbitmq_door
        if settings.queue is None:
            return None
        if settings.url is None:
            raise ConfigurationError(
                "rabbitmq_door.url: rabbitmq_door.queue names a queue; say where it is (RABBITMQ_URL)"
            )
        try:
            # Here, because the client is an extra and slow to load.
            from carillon.doors.rabbitmq.door import RabbitDoor, RabbitDoorRules  # noqa: PLC0415 - as said
            from carillon.doors.rabbitmq.wire import QueueWire  # noqa: PLC0415 - as said
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"rabbitmq_door.queue: needs the package {error.name!r}; pip install 'carillon[rabbitmq]'"
            ) from None
        if intake is None:
            return None
        rules = RabbitDoorRules(
            url=settings.url, queue=settings.queue, queue_type=settings.queue_type, prefetch=settings.prefetch
        )
        return RabbitDoor(
            rules=rules,
            wire=QueueWire(rules.queue, self._process.settings.http.max_body_bytes, new_id),
            acceptor=intake.intake,
            ledger=self._ledger.ledger,
            clock=self._process.clock,
            observer=self._process.observe,
        )
