"""What well-behaved clients cannot write: names and ids that are no UTF-8, to RabbitMQ and to Kafka."""

import ctypes
from collections.abc import Sequence
from typing import Self

from tests.support.kafka import Topic
from tests.support.kafka_cluster import PRODUCER, library

_TOPIC, _VALUE, _FLAGS, _HEADER = 1, 4, 7, 9
"""The client library's own numbers for what a record is made of."""
_COPY = 2
_SAID_BYTES = 512
_FLUSH_MS = 20_000


class RawText(str):
    """A text for AMQP's writer that is written as these bytes."""

    __slots__ = ("raw",)
    raw: bytes

    def __new__(cls, raw: bytes) -> Self:
        made = super().__new__(cls, raw.decode("latin-1"))
        made.raw = raw
        return made

    def __str__(self) -> str:
        # Clients make a text of what they are given.
        return self

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        del encoding, errors
        return self.raw


class _Memory(ctypes.Structure):
    _fields_ = (("start", ctypes.c_char_p), ("size", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("value", ctypes.c_char_p), ("size", ctypes.c_ssize_t))


class _Held(ctypes.Union):
    _fields_ = (
        ("text", ctypes.c_char_p),
        ("number", ctypes.c_int),
        ("memory", _Memory),
        ("header", _Header),
        ("room", ctypes.c_char * 64),
    )


class _Piece(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("held", _Held))


class RawProducer:
    """Writes records whose headers have any bytes for a name; the Python client takes texts only."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic.name.encode()
        self._library = library()
        self._library.rd_kafka_produceva.restype = ctypes.c_void_p
        said = ctypes.create_string_buffer(_SAID_BYTES)
        settings = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        for name, value in ((b"bootstrap.servers", topic.kafka.bootstrap.encode()), (b"log_level", b"2")):
            self._library.rd_kafka_conf_set(settings, name, value, said, ctypes.c_size_t(_SAID_BYTES))
        self._client = ctypes.c_void_p(
            self._library.rd_kafka_new(PRODUCER, settings, said, ctypes.c_size_t(_SAID_BYTES))
        )

    def write(self, *records: tuple[bytes, Sequence[tuple[bytes, bytes]]]) -> None:
        """Return once the broker has them; a header's name ends at its first zero byte."""
        for value, headers in records:
            pieces = (_Piece * (3 + len(headers)))()
            pieces[0].kind, pieces[0].held.text = _TOPIC, self._topic
            pieces[1].kind, pieces[1].held.memory = _VALUE, _Memory(value, len(value))
            pieces[2].kind, pieces[2].held.number = _FLAGS, _COPY
            for place, (name, said) in enumerate(headers, 3):
                pieces[place].kind, pieces[place].held.header = _HEADER, _Header(name, said, len(said))
            if self._library.rd_kafka_produceva(self._client, pieces, ctypes.c_size_t(len(pieces))):
                raise RuntimeError("not written")
        if self._library.rd_kafka_flush(self._client, _FLUSH_MS):
            raise RuntimeError("not written in time")
