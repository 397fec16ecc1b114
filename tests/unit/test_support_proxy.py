"""The fault proxy passes, cuts, holds, swallows and resets."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.proxy import FaultProxy

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1024):
                writer.write(data)
        except ConnectionResetError:
            return
        finally:
            writer.close()

    async with (
        await asyncio.start_server(echo, "127.0.0.1", 0) as server,
        FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy,
    ):
        yield proxy


async def connect(proxy: FaultProxy) -> Streams:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def echoes(streams: Streams, text: bytes) -> bool:
    reader, writer = streams
    writer.write(text)
    return await reader.readexactly(len(text)) == text


async def received(proxy: FaultProxy, number: int) -> None:
    while proxy.received < number:  # noqa: ASYNC110 - the proxy counts, it does not announce
        await asyncio.sleep(0)


async def test_passes_bytes_and_the_end(proxy: FaultProxy) -> None:
    reader, writer = streams = await connect(proxy)
    proxy.latency = 0.001
    assert await echoes(streams, b"ding")
    writer.write_eof()
    assert await reader.read() == b""
    assert (proxy.to_upstream, proxy.to_client, proxy.connections) == (4, 4, 1)
    writer.close()


async def test_cuts_after_n_bytes(proxy: FaultProxy) -> None:
    reader, writer = streams = await connect(proxy)
    assert await echoes(streams, b"ding")
    proxy.cut(after=2)
    writer.write(b"dong")
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(4)
    assert proxy.to_client == 6
    writer.close()


async def test_resets_what_is_open(proxy: FaultProxy) -> None:
    reader, writer = streams = await connect(proxy)
    assert await echoes(streams, b"ding")
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    again = await connect(proxy)
    assert await echoes(again, b"ding")
    again[1].close()


async def test_pause_holds_and_resume_delivers(proxy: FaultProxy) -> None:
    reader, writer = await connect(proxy)
    proxy.pause()
    writer.write(b"ding")
    await received(proxy, 4)
    assert proxy.to_upstream == 0
    proxy.resume()
    assert await reader.readexactly(4) == b"ding"
    writer.close()


async def test_blackhole_swallows_until_healed(proxy: FaultProxy) -> None:
    reader, writer = await connect(proxy)
    proxy.blackhole()
    writer.write(b"ding")
    await received(proxy, 4)
    assert proxy.to_upstream == 0
    proxy.heal()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    again = await connect(proxy)
    assert await echoes(again, b"ding")
    again[1].close()


async def test_refuses_while_told_to(proxy: FaultProxy) -> None:
    proxy.refuse()
    reader, writer = await connect(proxy)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_a_connection_that_is_being_made_is_reset_too(proxy: FaultProxy) -> None:
    connecting = asyncio.create_task(connect(proxy))
    while proxy.connections == 0:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    proxy.refuse()
    reader, writer = await connecting
    writer.write(b"ding")
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.readexactly(4), 10)
    writer.close()
