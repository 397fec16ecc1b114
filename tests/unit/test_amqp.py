"""The readers of what a broker passes on: everything that it can deliver is read, and nobody goes another way."""

import ast
import struct

import pytest
from pamqp import commands, decode, header

from carillon import amqp
from tests.support.sources import syntax_trees


def table(*fields: bytes) -> bytes:
    inner = b"".join(fields)
    return struct.pack(">I", len(inner)) + inner


def field(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


def test_texts_that_are_utf_8_are_read_as_before() -> None:
    assert amqp.read_short_text(b"\x05h\xc3\xa9lo and more") == (6, "hélo")
    assert amqp.read_table(table(field(b"a", b"t\x01"))) == (8, {"a": True})
    assert amqp.read_timestamp(struct.pack(">Q", 0))[1] is not None


def test_other_bytes_are_spelt_out_and_stay_different() -> None:
    assert amqp.read_short_text(b"\x02\xff\xfe") == (3, r"\xff\xfe")
    assert amqp.read_short_text(b"\x02\xfe\xff") == (3, r"\xfe\xff")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(field(b"\xff", b"t\x01"), id="a name"),
        pytest.param(field(b"a", b"T" + b"\xff" * 8), id="a moment"),
        pytest.param(field(b"a", b"?"), id="a kind"),
        pytest.param(field(b"a", b"F\xff\xff\xff\xff"), id="a length"),
    ],
)
def test_a_table_that_cannot_be_read_says_so_and_ends_where_it_ends(fields: bytes) -> None:
    consumed, read = amqp.read_table(table(field(b"idempotency-key", b"S\x00\x00\x00\x01k"), fields) + b"more")
    assert list(read) == [amqp.UNREADABLE]
    assert consumed == len(table(field(b"idempotency-key", b"S\x00\x00\x00\x01k"), fields))


def test_tables_in_tables_in_tables_are_no_way_out() -> None:
    inner = table()
    for _ in range(5000):
        inner = table(field(b"a", b"F" + inner))
    assert list(amqp.read_table(inner)[1]) == [amqp.UNREADABLE]


def test_a_moment_beyond_the_calendar_is_none() -> None:
    assert amqp.read_timestamp(b"\xff" * 8) == (8, None)


def test_the_client_reads_with_them() -> None:
    """Whole frames, as a broker sends them: the head of a message, and the method with its routing key."""
    head = header.ContentHeader(properties=commands.Basic.Properties(message_id="ab", headers={"c": "d"}))
    raw = head.marshal().replace(b"\x02ab", b"\x02\xff\xfe").replace(b"\x01c", b"\x01\xff")
    read = header.ContentHeader()
    read.unmarshal(raw)
    assert read.properties.message_id == r"\xff\xfe"
    assert list(read.properties.headers or {}) == [amqp.UNREADABLE]
    told = commands.Basic.Deliver()
    told.unmarshal(b"\x01c" + struct.pack(">Q", 7) + b"\x00" + b"\x00" + b"\x01\xff")
    assert (told.delivery_tag, told.routing_key) == (7, r"\xff")


def test_control_the_clients_own_readers_raise() -> None:
    with pytest.raises(UnicodeDecodeError):
        decode.short_str(b"\x02\xff\xfe")
    with pytest.raises(ValueError, match="utf-8"):
        decode.field_table(table(field(b"\xff", b"t\x01")))


def test_nobody_else_connects() -> None:
    found = {
        name
        for name, tree in syntax_trees(("src",))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("connect") and ast.unparse(node.value) == "aio_pika"
    }
    assert found == {"src/carillon/amqp.py"}
