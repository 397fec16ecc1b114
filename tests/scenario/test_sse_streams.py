"""The sse blueprint over HTTP: a person's stream, byte by byte, and their inbox."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.support.servers import Postgres
from tests.support.sse_stand import SseStand
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(params=["sqlite", "postgres"], scope="module", loop_scope="module")
async def sse(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: Postgres
) -> AsyncIterator[SseStand]:
    folder = tmp_path_factory.mktemp("sse")
    url = f"sqlite:///{folder / 'sse.db'}" if request.param == "sqlite" else postgres.database()
    async with SseStand(folder, url, "[sse]\nheartbeat_seconds = 0.5\n") as stand:
        await stand.start()
        yield stand
    if request.param == "postgres":
        postgres.drop(url)


@pytest.fixture
def ada() -> str:
    """Somebody nobody else has told anything."""
    return f"ada-{uuid4().hex[:8]}"


@pytest.mark.req("S4-42", "S4-44")
async def test_the_head_and_the_first_frame(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    assert reader.status == 200
    assert reader.headers["content-type"] == "text/event-stream"
    assert reader.headers["cache-control"] == "no-cache"
    assert reader.headers["x-accel-buffering"] == "no"
    first = reader.frames[0]
    assert first.raw.startswith('event: connected\ndata: {"status":"connected"}\n')
    assert "\nretry: 3000\n" in first.raw


@pytest.mark.req("S4-43")
async def test_nobodys_stream_is_refused(sse: SseStand) -> None:
    for path in ("/notifications/stream", "/notifications/stream?user_id=", "/notifications/stream?user_id=%20"):
        answer = await sse.ask("GET", path)
        assert answer.status == 400
        assert answer.json["detail"] == "user_id is required"
    assert (await sse.ask("GET", "/notifications/stream?user_id=a%00b")).status == 400
    assert (await sse.ask("GET", "/notifications/stream?user_id=a&last_event_id=soon")).status == 400
    assert (await sse.ask("GET", "/notifications/stream?user_id=a&colour=red")).status == 400


@pytest.mark.req("S4-45", "S4-46", "S4-25")
async def test_a_notification_is_one_frame(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    payload = {"text": "two\nlines\r\u2028", "nested": {"n": [1, None]}}
    told = await sse.tell(ada, payload=payload, priority="LOW", event_timestamp="2026-03-01T12:00:00Z")
    (frame,) = await reader.number(1)
    number, event, data, *rest = frame.raw.split("\n")
    assert (number, event, rest) == ("id: 1", "event: notification", [])
    assert json.loads(data.removeprefix("data: ")) == {
        "notification_id": told,
        "event_type": "job.new",
        "priority": "LOW",
        "event_timestamp": "2026-03-01T12:00:00.000Z",
        "payload": payload,
    }
    row = await sse.until_row(told, status="pushed")
    assert row["retry_count"] == 0


@pytest.mark.req("S4-47")
async def test_a_heart_beats_while_nothing_happens(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    await reader.until(lambda frames: sum(frame.event == "heartbeat" for frame in frames) >= 3)
    beat = await reader.event("heartbeat")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", beat.json["timestamp"])
    assert beat.id is None


@pytest.mark.req("S4-48", "S4-49")
async def test_who_comes_again_has_no_gap_and_nothing_twice(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    for number in range(1, 4):
        await sse.tell(ada, payload={"n": number})
    await reader.number(3)
    other = await sse.read(ada)
    await reader.leave()
    for number in range(4, 7):
        await sse.tell(ada, payload={"n": number})
    await other.number(3)
    by_header = await sse.read(ada, headers={"Last-Event-ID": reader.last_id})
    by_query = await sse.read(ada, query="last_event_id=2")
    await sse.tell(ada, payload={"n": 7})
    for resumed, wanted in ((by_header, [4, 5, 6, 7]), (by_query, [3, 4, 5, 6, 7])):
        await resumed.number(len(wanted))
        assert [payload["n"] for payload in resumed.payloads] == wanted
        assert [frame.id for frame in resumed.told] == [str(number) for number in wanted]


async def test_who_heard_nothing_resumes_from_where_it_sat_down(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    assert reader.last_id == "0"
    await reader.leave()
    other = await sse.read(ada)
    await sse.tell(ada, payload={"n": 1})
    await other.number(1)
    again = await sse.read(ada, headers={"Last-Event-ID": reader.last_id})
    await again.number(1)


async def test_a_number_of_another_log_is_a_gap(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    await sse.tell(ada)
    await reader.number(1)
    lost = await sse.read(ada, headers={"Last-Event-ID": "999"})
    assert (await lost.event("gap")).json == {"last_event_id": 0, "oldest": 1}
    await lost.number(1)


@pytest.mark.req("S4-50")
async def test_everybody_of_one_person_hears_and_nobody_else(sse: SseStand, ada: str) -> None:
    readers = [await sse.read(ada) for _ in range(3)]
    stranger = await sse.read(f"not-{ada}")
    told = await sse.tell(ada)
    for reader in readers:
        (frame,) = await reader.number(1)
        assert frame.json["notification_id"] == told
    await sse.tell(f"not-{ada}", payload={"own": True})
    await stranger.number(1)
    assert stranger.payloads == [{"own": True}]


@pytest.mark.req("S4-28")
async def test_what_came_while_somebody_was_away_waits_for_them(sse: SseStand, ada: str) -> None:
    late = await sse.tell(ada, payload={"n": 2}, priority="LOW")
    urgent = await sse.tell(ada, payload={"n": 1}, priority="HIGH")
    for told in (late, urgent):
        row = await sse.until_row(told, status="not_pushed", last_error="not connected")
        assert row["retry_count"] == 0
    inbox = (await sse.ask("GET", f"/notifications/{ada}")).json
    assert [(entry["notification_id"], entry["seq"]) for entry in inbox["notifications"]] == [
        (urgent, None),
        (late, None),
    ]
    reader = await sse.read(ada)
    await reader.number(2)
    assert reader.payloads == [{"n": 1}, {"n": 2}]
    assert (await sse.until_row(late, status="pushed"))["retry_count"] == 0


@pytest.mark.req("P-613")
async def test_a_cursor_goes_through_what_waits_into_what_was_pushed(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    pushed = [await sse.tell(ada, payload={"n": number}) for number in range(2)]
    await reader.number(2)
    await reader.leave()
    held = [await sse.tell(ada, payload={"n": number}) for number in range(2, 5)]
    for told in held:
        await sse.until_row(told, status="not_pushed", last_error="not connected")
    for size in (1, 2, 3, 4):
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            more = f"&cursor={cursor}" if cursor else ""
            page = (await sse.ask("GET", f"/notifications/{ada}?limit={size}{more}")).json
            seen += [entry["notification_id"] for entry in page["notifications"]]
            cursor = page["next_cursor"]
        assert seen == [*held[::-1], *pushed[::-1]], size


@pytest.mark.req("S4-36", "S4-11")
async def test_an_acknowledgement_makes_it_delivered_once(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    told = await sse.tell(ada)
    await reader.number(1)
    await sse.until_row(told, status="pushed", notification_delivered_timestamp=None)
    path = f"/notifications/{told}/ack"
    assert (await sse.ask("POST", path, {"user_id": f"not-{ada}"})).status == 404
    assert (await sse.ask("POST", path)).status == 400
    assert (await sse.ask("POST", f"/notifications/{uuid4()}/ack?user_id={ada}")).status == 404
    first = await sse.ask("POST", f"{path}?user_id={ada}")
    assert (first.status, first.json) == (200, {"notification_id": told, "status": "delivered"})
    row = await sse.until_row(told, status="delivered")
    assert row["notification_delivered_timestamp"] is not None
    assert (await sse.ask("POST", path, {"user_id": ada})).status == 200
    again = await sse.row(told)
    assert again["notification_delivered_timestamp"] == row["notification_delivered_timestamp"]


async def test_a_page_of_another_site_answers_for_nobody(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    told = await sse.tell(ada)
    await reader.number(1)
    path = f"/notifications/{told}/ack?user_id={ada}"
    assert (await sse.ask("POST", path, headers={"Sec-Fetch-Site": "cross-site"})).status == 403
    assert (await sse.ask("POST", path, headers={"Sec-Fetch-Site": "same-origin"})).status == 200


@pytest.mark.req("S4-55")
async def test_the_inbox_shows_the_newest_first_and_counts(sse: SseStand, ada: str) -> None:
    reader = await sse.read(ada)
    told = [await sse.tell(ada, payload={"n": number}) for number in range(3)]
    await reader.number(3)
    inbox = (await sse.ask("GET", f"/notifications/{ada}")).json
    assert (inbox["user_id"], inbox["count"]) == (ada, 3)
    assert [entry["notification_id"] for entry in inbox["notifications"]] == told[::-1]
    assert inbox["notifications"][0]["payload"] == {"n": 2}
    page = (await sse.ask("GET", f"/notifications/{ada}?limit=1&before=3")).json
    assert [entry["seq"] for entry in page["notifications"]] == [2]
    assert (await sse.ask("GET", f"/notifications/{ada}?limit=101")).status == 400
    assert (await sse.ask("GET", f"/notifications/{ada}/unread")).json == {"user_id": ada, "total": 3, "unread": 3}
    marked = await sse.ask("POST", f"/notifications/{ada}/read", {"notification_ids": [told[0], "unknown"]})
    assert marked.json == {"user_id": ada, "marked": 1}
    assert (await sse.row(told[0]))["is_read"]
    assert (await sse.ask("POST", f"/notifications/{ada}/read")).json["marked"] == 2
    assert (await sse.ask("GET", f"/notifications/{ada}/unread")).json["unread"] == 0
    assert (await sse.ask("GET", "/notifications/never-heard-of")).json["count"] == 0


@pytest.mark.req("S4-56")
async def test_health_counts_who_reads(sse: SseStand, ada: str) -> None:
    async def reading(number: int) -> bool:
        answer = await sse.ask("GET", "/health")
        assert answer.status == 200
        assert answer.json.keys() == {"status", "active_connections", "timestamp"}
        assert answer.json["status"] == "ok"
        return bool(answer.json["active_connections"] == number)

    before = (await sse.ask("GET", "/health")).json["active_connections"]
    reader = await sse.read(ada)
    await until(lambda: reading(before + 1), timeout=40, what="one more")
    await reader.leave()
    await until(lambda: reading(before), timeout=40, what="one less")


async def test_control_without_names_everybody_hears_everything(tmp_path: Path) -> None:
    async with SseStand(tmp_path, f"sqlite:///{tmp_path / 'sse.db'}") as stand:
        await stand.start(mutant="everybody_hears_everything")
        reader, stranger = await stand.read("ada"), await stand.read("bob")
        await stand.tell("ada")
        await reader.number(1)
        await stranger.number(1)


async def test_settings_that_cannot_work_stop_the_start(tmp_path: Path) -> None:
    async with SseStand(tmp_path, f"sqlite:///{tmp_path / 'sse.db'}") as stand:
        program = stand.launch(CARILLON_SSE__HEARTBEAT_SECONDS="0")
        assert await asyncio.to_thread(program.wait, 40) != 0
        assert "sse.heartbeat_seconds: 0.0 is not between" in program.tail()
