"""Many clients at once: one key is one notification, and those who hang up break nothing."""

import asyncio
import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.http_client import Client, serving
from tests.support.process import Program

MAIL = {
    "templateKey": "welcome",
    "channel": "email",
    "recipient": "ada@example.org",
    "data": {"name": "Ada", "link": "https://example.org/start"},
}
# Sending RST instead of FIN at close: the connection is gone without a goodbye.
ABRUPTLY = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Program, Client]]:
    with serving(tmp_path_factory.mktemp("http-together")) as both:
        yield both


@pytest.mark.req("S2-13")
def test_many_requests_with_one_key_are_one_notification(served: tuple[Program, Client]) -> None:
    client = served[1]
    before = client.count()
    keys = [f"race-{number % 20}" for number in range(400)]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda key: client.send(MAIL, Idempotency_Key=key), keys))
    assert {answer.status for answer in answers} == {202}
    ids: dict[str, set[str]] = {}
    for key, answer in zip(keys, answers, strict=True):
        ids.setdefault(key, set()).add(answer.json["notificationId"])
    assert all(len(found) == 1 for found in ids.values())
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 20
    assert client.count() == before + 20


@pytest.mark.req("S2-13")
def test_two_bodies_racing_for_one_key_have_one_winner(served: tuple[Program, Client]) -> None:
    client = served[1]
    bodies = [{**MAIL, "metadata": {"number": number}} for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda body: client.send(body, Idempotency_Key="prize"), bodies))
    assert sorted(answer.status for answer in answers) == [202] + [409] * 15


def test_clients_that_hang_up_in_the_middle(served: tuple[Program, Client]) -> None:
    program, client = served
    before, mark = client.count(), program.mark()
    body = json.dumps(MAIL).encode()
    whole = (
        b"POST /api/v1/notifications/send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    ) + body
    for number in range(300):
        connection = socket.create_connection((client.host, client.port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABRUPTLY)
        connection.sendall(whole[: number * len(whole) // 300])
        connection.close()
    # Not one of them said everything, so not one of them was heard.
    assert client.count() == before
    assert client.send(MAIL).status == 202
    assert not [line for line in program.lines[mark:] if line["level"] in {"warning", "error"}]
    assert not program.noise


async def test_clients_that_hang_up_before_the_answer_are_written_down_whole_or_not(
    served: tuple[Program, Client],
) -> None:
    program, client = served

    async def ask(number: int) -> str:
        body = json.dumps({**MAIL, "userId": f"gone-{number}"}).encode()
        _, writer = await asyncio.open_connection(client.host, client.port)
        head = b"POST /api/v1/notifications/send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        if number % 2:
            await asyncio.sleep(number / 50_000)
        writer.transport.abort()
        return f"gone-{number}"

    users = await asyncio.gather(*(ask(number) for number in range(200)))
    assert client.send(MAIL).status == 202
    for user in users[::10]:
        page = client.get(f"/api/v1/notifications?userId={user}").json
        assert page["totalCount"] in {0, 1}
        assert all(len(item["routes"]) == 1 for item in page["items"])
    assert not program.noise
