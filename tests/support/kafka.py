"""A private Kafka on loopback: real brokers' protocol over TCP, topics of one's own, and what a group has committed."""

import json
import subprocess
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.daemon import Daemon
from tests.support.waiting import wait_until

OFFSET_COMMIT, HEARTBEAT = 8, 12
"""The protocol's numbers of two requests."""
METADATA_TOO_LARGE, COORDINATOR_NOT_AVAILABLE, FENCED = 12, 15, 82
"""Errors a broker may answer with."""
_ROOT = Path(__file__).parents[2]
_numbers = count(1)
_COMMIT_SECONDS = 20.0


class Kafka(Daemon):
    """A cluster that forgets everything when its process ends; set down, a broker keeps what it has."""

    def __init__(self, brokers: int = 1) -> None:
        super().__init__("kafka")
        self._brokers = brokers
        self.bootstrap = ""

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.as_owner([sys.executable, "-m", "tests.support.kafka_cluster", str(self._brokers)]),
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.bootstrap = str(self._answer())

    def tell(self, word: str, *given: Any) -> None:
        """One command of tests/support/kafka_cluster.py."""
        if self._child is None or self._child.stdin is None:
            raise RuntimeError("Kafka is not running; start it first")
        self._child.stdin.write(json.dumps([word, *given]).encode() + b"\n")
        self._child.stdin.flush()
        said = self._answer()
        if said is not None:
            raise RuntimeError(f"{word}: {said}")

    def topic(self, partitions: int = 1) -> "Topic":
        name = f"notifications-{next(_numbers)}"
        self.tell("make", name, partitions)
        return Topic(self, name, partitions)

    def close(self) -> None:
        super().close()
        if self._child is not None:
            for pipe in (self._child.stdin, self._child.stdout):
                if pipe is not None:
                    pipe.close()

    def _answer(self) -> Any:
        if self._child is None or self._child.stdout is None:
            raise RuntimeError("Kafka is not running; start it first")
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"Kafka ended:\n{self.log.read_text(errors='replace')[-2000:]}")
        return json.loads(line)


class Topic:
    """One topic, written to as producers do and asked about as operators do."""

    def __init__(self, kafka: Kafka, name: str, partitions: int) -> None:
        self.kafka = kafka
        self.name = name
        self.partitions = partitions
        self.group = f"group-{name}"
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 1, "log_level": 2})
        self._asker = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": self.group, "log_level": 2})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._asker.close()

    def write(self, *values: bytes | dict[str, Any] | None, partition: int | None = None, **more: Any) -> None:
        """Returns once the broker has them; a dict is written as JSON under its user's key, as producers do."""
        self.write_all(values, partition=partition, **more)

    def write_all(
        self, values: Iterable[bytes | dict[str, Any] | None], *, partition: int | None = None, **more: Any
    ) -> None:
        failed: list[object] = []
        place = {} if partition is None else {"partition": partition}
        for value in values:
            key = str(value["user_id"]) if isinstance(value, dict) and "user_id" in value else None
            body = json.dumps(value) if isinstance(value, dict) else value
            self._producer.produce(
                self.name,
                body,
                **{"key": key, **place, **more},
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            self._producer.poll(0)
        if self._producer.flush(_COMMIT_SECONDS) or failed:
            raise RuntimeError(f"not written: {failed[:3]}")

    def committed(self) -> dict[int, int]:
        """The group's offsets; partitions without one are left out."""
        places = [TopicPartition(self.name, number) for number in range(self.partitions)]
        found = self._asker.committed(places, timeout=_COMMIT_SECONDS)
        return {place.partition: place.offset for place in found if place.offset >= 0}

    def commit(self, offsets: dict[int, int]) -> None:
        """As an operator does while the group has no members."""
        places = [TopicPartition(self.name, number, offset) for number, offset in offsets.items()]
        self._asker.commit(offsets=places, asynchronous=False)

    def ends(self) -> dict[int, int]:
        """The offset after the last record of each partition that has any."""
        bounds = {
            number: self._asker.get_watermark_offsets(TopicPartition(self.name, number), timeout=_COMMIT_SECONDS)
            for number in range(self.partitions)
        }
        return {number: high for number, (low, high) in bounds.items() if high > low or high > 0}

    def wait_all_committed(self, seconds: float = 30.0) -> None:
        wait_until(lambda: self.committed() == self.ends(), timeout=seconds, what="everything committed")
