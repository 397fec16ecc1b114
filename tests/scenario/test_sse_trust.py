"""Who may read whose stream: tokens, one-use tickets, tenants, and what happens when trust ends in the middle."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import pytest_asyncio

from tests.support.sse_stand import SECRET, SseStand

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = "[sse]\nrecheck_seconds = 0.2\nticket_seconds = 30\n[auth]\nleeway_seconds = 0\nrevoked_file = '{revoked}'\n"


def token(user: str, *, seconds: float = 600, **claims: Any) -> str:
    now = time.time()
    said = {"sub": user, "role": "user", "iat": now, "exp": now + seconds, "jti": f"t-{user}", **claims}
    return jwt.encode(said, SECRET, algorithm="HS256")


def bearer(user: str, **claims: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(user, **claims)}"}


@pytest.fixture(scope="module")
def revoked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("revoked") / "revoked"
    file.write_text("")
    return file


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sse(tmp_path_factory: pytest.TempPathFactory, revoked: Path) -> AsyncIterator[SseStand]:
    folder = tmp_path_factory.mktemp("sse")
    settings = SETTINGS.format(revoked=revoked)
    async with SseStand(folder, f"sqlite:///{folder / 'sse.db'}", settings, JWT_SECRET_KEY=SECRET) as stand:
        await stand.start()
        yield stand


async def ticket(sse: SseStand, user: str, **claims: Any) -> str:
    answer = await sse.ask("POST", "/notifications/stream/tickets", headers=bearer(user, **claims))
    assert answer.status == 201, answer.json
    return str(answer.json["ticket"])


async def test_a_reader_s_token_writes_into_nobody_s_stream(sse: SseStand) -> None:
    event = {"event_type": "job.new", "user_id": "own"}
    for user in ("own", "other"):
        answer = await sse.ask("POST", "/notifications", event, headers=bearer(user))
        assert (answer.status, answer.json["error"]["code"]) == (403, "FORBIDDEN")
    assert (await sse.ask("POST", "/notifications", event)).status == 401


@pytest.mark.req("S4-43")
async def test_the_token_says_whose_stream_it_is(sse: SseStand) -> None:
    reader = await sse.read(headers=bearer("own"))
    named = await sse.read("own", headers=bearer("own"))
    operator = await sse.read("own", headers=bearer("root", role="admin"))
    told = await sse.tell("own", headers=bearer("root", role="admin"))
    for each in (reader, named, operator):
        (frame,) = await each.number(1)
        assert frame.json["notification_id"] == told
    assert (await sse.read("own")).status == 401
    assert (await sse.read("own", headers=bearer("other"))).status == 403
    assert (await sse.read("own", query=f"ticket={token('own')}")).status == 401


async def test_other_peoples_inboxes_and_answers_are_refused(sse: SseStand) -> None:
    reader = await sse.read(headers=bearer("vera"))
    told = await sse.tell("vera", headers=bearer("root", role="admin"))
    await reader.number(1)
    for method, path in (
        ("GET", "/notifications/vera"),
        ("GET", "/notifications/vera/unread"),
        ("POST", "/notifications/vera/read"),
        ("POST", f"/notifications/{told}/ack?user_id=vera"),
    ):
        assert (await sse.ask(method, path, headers=bearer("mallory"))).status == 403
        assert (await sse.ask(method, path)).status == 401
    assert (await sse.ask("POST", f"/notifications/{told}/ack", headers=bearer("mallory"))).status == 404
    assert (await sse.ask("POST", f"/notifications/{told}/ack", headers=bearer("vera"))).status == 200


async def test_a_ticket_opens_one_stream_and_speaks_for_its_reader(sse: SseStand) -> None:
    text = await ticket(sse, "tess")
    reader = await sse.read(query=f"ticket={text}")
    told = await sse.tell("tess", headers=bearer("root", role="admin"))
    await reader.number(1)
    assert (await sse.read(query=f"ticket={text}")).status == 401
    # Who calls is asked before a byte of the body is read, so a body shows no ticket.
    assert (await sse.ask("POST", f"/notifications/{told}/ack", {"ticket": text})).status == 401
    assert (await sse.ask("POST", f"/notifications/{told}/ack?ticket={text}", {})).status == 200
    assert (await sse.ask("GET", f"/notifications/tess?ticket={text}")).json["count"] == 1
    assert (await sse.ask("GET", f"/notifications/own?ticket={text}")).status == 403
    assert (
        await sse.ask("POST", "/notifications/stream/tickets", headers={"Authorization": f"Bearer {text}"})
    ).status == 401
    assert (await sse.ask("GET", "/api/v1/notifications", headers={"Authorization": f"Bearer {text}"})).status == 401


async def test_tickets_are_nobodys_before_they_are_made(sse: SseStand) -> None:
    for text in ("", "st_", "st_guess", "st_" + "a" * 43, "ck_12345678_x", "%00"):
        assert (await sse.read(query=f"ticket={text}")).status == 401, text
    asked = await sse.ask("POST", "/notifications/stream/tickets", {"user_id": "own"}, headers=bearer("mallory"))
    assert asked.status == 403
    assert (await sse.ask("POST", "/notifications/stream/tickets")).status == 401


@pytest.mark.parametrize("by", ["token", "ticket"])
async def test_a_stream_ends_with_the_token_it_was_opened_by(sse: SseStand, by: str) -> None:
    short = {"seconds": 8.0, "jti": f"short-{by}"}
    if by == "token":
        reader = await sse.read(headers=bearer("brief", **short))
    else:
        reader = await sse.read(query=f"ticket={await ticket(sse, 'brief', **short)}")
    assert (await reader.event("closing")).json == {"reason": "token"}
    await reader.closed()


async def test_a_stream_ends_when_its_token_is_taken_back(sse: SseStand, revoked: Path) -> None:
    kept = await sse.read(headers=bearer("gone", jti="kept"))
    streams = [
        await sse.read(headers=bearer("gone", jti="taken")),
        await sse.read(query=f"ticket={await ticket(sse, 'gone', jti='taken')}"),
    ]
    await asyncio.to_thread(revoked.write_text, "taken\n")
    for reader in streams:
        assert (await reader.event("closing")).json == {"reason": "token"}
        await reader.closed()
    assert not kept.ended.is_set()


async def test_people_of_two_tenants_are_two_people(sse: SseStand) -> None:
    blue = await sse.read(headers=bearer("sam", tenant_id="blue"))
    red = await sse.read(headers=bearer("sam", tenant_id="red"))
    none = await sse.read(headers=bearer("sam"))
    await sse.tell("sam", payload={"for": "none"}, headers=bearer("root", role="admin"))
    await sse.tell("sam", payload={"for": "blue"}, headers=bearer("root", role="admin", tenant_id="blue"))
    await none.number(1)
    await blue.number(1)
    assert (none.payloads, blue.payloads) == ([{"for": "none"}], [{"for": "blue"}])
    text = await ticket(sse, "sam", tenant_id="blue")
    assert (await sse.ask("GET", f"/notifications/sam?ticket={text}")).json["count"] == 1
    assert (await sse.ask("GET", "/notifications/sam", headers=bearer("sam", tenant_id="red"))).json["count"] == 0
    assert red.told == []


async def test_nothing_of_a_ticket_stands_in_the_log_or_the_ledger(sse: SseStand) -> None:
    text = await ticket(sse, "shy")
    await sse.read(query=f"ticket={text}")
    mark = sse.programs[0].mark()
    assert (await sse.read(query=f"ticket={text}")).status == 401
    line = await sse.programs[0].until("token_refused", since=mark)
    assert (line["reason"], line["path"]) == ("unknown", "/notifications/stream")
    assert text not in sse.programs[0].tail(10_000)
    stored = b"".join(file.read_bytes() for file in sse.folder.glob("sse.db*"))
    assert text.encode() not in stored


async def test_control_a_ticket_that_is_not_used_up_opens_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'sse.db'}"
    async with SseStand(tmp_path, url, JWT_SECRET_KEY=SECRET) as stand:
        await stand.start(mutant="tickets_without_end")
        text = await ticket(stand, "tess")
        assert [(await stand.read(query=f"ticket={text}")).status for _ in range(2)] == [200, 200]
