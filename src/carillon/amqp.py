"""The way to RabbitMQ for the whole package: a connection that no property of a message can break.

AMQP says that names, ids and routing keys are UTF-8, and brokers pass on what publishers wrote without looking. The
client's own readers raise on other bytes, which ends the connection; the broker then delivers the same message again,
and nothing behind it is ever read. The readers here replace those readers in the client's table, for every user of the
client in the process: they read what the client reads, and something instead of raising.
"""

import asyncio
import struct
from collections.abc import Coroutine
from datetime import datetime
from typing import Any

import aio_pika
from aio_pika.abc import AbstractConnection
from pamqp import decode
from pamqp.common import FieldTable

UNREADABLE = "carillon-unreadable"
"""The only header of a message whose headers cannot be read; its value says why."""
_SAID = 200
_LENGTH = struct.Struct(">I")
_TIMESTAMP_BYTES = 8


async def connect(url: str, **options: Any) -> AbstractConnection:  # noqa: ANN401 - those of the client
    """Connect as `aio_pika.connect` does."""
    made: AbstractConnection = await aio_pika.connect(url, **options)
    return made


async def answered_within(seconds: float, call: Coroutine[Any, Any, object]) -> None:
    """Wait for the broker's answer to a call, and no longer than `seconds`; the call itself goes on after that.

    The client closes the channel of a call that is cancelled or has a timeout, and the broker then delivers everything
    again that was read on this channel and is not acknowledged yet.
    """
    asked = asyncio.create_task(call)
    # Nobody waits any more for a call that fails after its time.
    asked.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait({asked}, timeout=seconds)


def read_short_text(value: bytes) -> tuple[int, str]:
    """A text of at most 255 bytes; other bytes than UTF-8 are spelt out, so that two ids stay two."""
    try:
        return decode.short_str(value)
    except UnicodeDecodeError:
        end = value[0] + 1
        return end, value[1:end].decode("utf-8", "backslashreplace")


def read_table(value: bytes) -> tuple[int, FieldTable]:
    """The headers of a message, or the one header that says why they cannot be read."""
    try:
        return decode.field_table(value)
    except (ValueError, OverflowError, ArithmeticError, RecursionError) as error:
        (length,) = _LENGTH.unpack_from(value)
        return _LENGTH.size + length, {UNREADABLE: f"{type(error).__name__}: {error}"[:_SAID]}


def read_timestamp(value: bytes) -> tuple[int, datetime | None]:
    """A moment; None for one that no calendar has."""
    try:
        return decode.timestamp(value)
    except (ValueError, OverflowError, OSError):
        return _TIMESTAMP_BYTES, None


decode.METHODS.update(shortstr=read_short_text, table=read_table, timestamp=read_timestamp)
