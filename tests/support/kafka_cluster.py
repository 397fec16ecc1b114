"""The broker process of a private Kafka: librdkafka's mock cluster over TCP, told what to do by lines of JSON."""

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka

PRODUCER = 0
_ANSWER_BYTES = 512


def library() -> ctypes.CDLL:
    """The client's own library, which brings the brokers along."""
    # Loaded already by the import above, under whatever name the wheel gave it.
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    found = ctypes.CDLL(str(next(folder.glob("librdkafka*.so*"))))
    for name in ("conf_new", "new", "mock_cluster_new"):
        getattr(found, f"rd_kafka_{name}").restype = ctypes.c_void_p
    found.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return found


class Cluster:
    """The brokers; every command is one call of the library."""

    def __init__(self, brokers: int) -> None:
        self._library = library()
        said = ctypes.create_string_buffer(_ANSWER_BYTES)
        settings = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        client = self._library.rd_kafka_new(PRODUCER, settings, said, ctypes.c_size_t(_ANSWER_BYTES))
        if client is None:
            raise RuntimeError(said.value.decode())
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(ctypes.c_void_p(client), brokers))
        # A group of few need not wait for members that may still come.
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 200)

    def bootstrap(self) -> str:
        return str(self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode())

    def make(self, topic: str, partitions: int) -> None:
        self._check("mock_topic_create", topic.encode(), partitions, 1)

    def down(self, broker: int) -> None:
        self._check("mock_broker_set_down", broker)

    def up(self, broker: int) -> None:
        self._check("mock_broker_set_up", broker)

    def fail(self, api: int, *errors: int) -> None:
        """The next requests of this API get these answers, one each."""
        codes = (ctypes.c_int * len(errors))(*errors)
        call = self._library.rd_kafka_mock_push_request_errors_array
        call(self._cluster, ctypes.c_int16(api), ctypes.c_size_t(len(errors)), codes)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._check("mock_partition_delete_records", topic.encode(), partition, ctypes.c_int64(before))

    def _check(self, name: str, *words: Any) -> None:
        code = getattr(self._library, f"rd_kafka_{name}")(self._cluster, *words)
        if code:
            raise RuntimeError(f"{name} answered {code}")


def main() -> None:
    cluster = Cluster(int(sys.argv[1]))
    _answer(cluster.bootstrap())
    for line in sys.stdin:
        word, *given = json.loads(line)
        call: Callable[..., str | None] = getattr(cluster, word)
        try:
            _answer(call(*given))
        except Exception as error:  # noqa: BLE001 - reported to the caller
            _answer(f"{type(error).__name__}: {error}")


def _answer(value: str | None) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
