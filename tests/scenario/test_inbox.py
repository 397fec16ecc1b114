"""The inbox of a product: `inApp` in local on SQLite and in listo with two processes on PostgreSQL."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.databases import Databases
from tests.support.listo_stand import SECRET, token
from tests.support.ports import free_port
from tests.support.process import Program
from tests.support.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.req("P-560")]

PARTS = {
    "title": "Your order is on its way",
    "body": "It arrives tomorrow.",
    "url": "/orders/7",
    "icon": "/parcel.png",
    "actions": [{"label": "Track it", "url": "https://example.org/7"}],
}
ADMIN = token("root", role="admin", tenant="acme")
CATEGORIES = (
    '[categories.orders]\ntitles = {en = "Orders", de = "Bestellungen"}\n[categories.security]\nrequired = true\n'
)
PATIENCE = 40


class Window:
    """One open stream of a person."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.frames: list[tuple[str, Any]] = []
        self._response = response
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        event = ""
        async for raw in self._response.content:
            line = raw.decode().rstrip()
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                self.frames.append((event, json.loads(line[6:])))

    async def gets(self, event: str, count: int = 1) -> list[Any]:
        async def there() -> bool:
            return sum(name == event for name, _ in self.frames) >= count

        await until(there, timeout=PATIENCE, what=f"{count} {event} in {self.frames}")
        return [data for name, data in self.frames if name == event]


class Stand:
    """A blueprint with an inbox, and people who read at any of its processes."""

    def __init__(self, name: str, programs: list[Program], http: aiohttp.ClientSession, stack: AsyncExitStack) -> None:
        self.name = name
        self.programs = programs
        self._http = http
        self._stack = stack

    def at(self, number: int = 0) -> str:
        return str(self.programs[number % len(self.programs)].wait_ready()["addresses"][0])

    async def ask(self, method: str, path: str, who: dict[str, str], body: Any = None, at: int = 0) -> tuple[int, Any]:
        async with self._http.request(method, self.at(at) + path, json=body, headers=who) as answer:
            return answer.status, await answer.json(content_type=None)

    async def window(self, who: dict[str, str], query: str = "", at: int = 0) -> Window:
        asked = self._http.get(f"{self.at(at)}/notifications/stream{query}", headers=who)
        window = Window(await self._stack.enter_async_context(asked))
        self._stack.callback(window.reading.cancel)
        await window.gets("connected")
        return window

    async def send(self, who: dict[str, str] = ADMIN, **fields: Any) -> tuple[int, Any]:
        key = {"local": "welcome", "listo": "order_confirmed"}[self.name]
        data = {"name": "Ada", "link": "https://example.org"}
        body = {"templateKey": key, "channel": "inApp", "locale": "en-US", "data": data, "inApp": PARTS, **fields}
        return await self.ask("POST", "/api/v1/notifications/send", who, body)

    async def sent(self, user: str, who: dict[str, str] = ADMIN, **fields: Any) -> str:
        status, answer = await self.send(who, userId=user, **fields)
        assert status == 202, answer
        return str(answer["notificationId"])

    async def shown(self, user: str, who: dict[str, str], count: int, query: str = "") -> list[Any]:
        found: list[Any] = []

        async def there() -> bool:
            status, answer = await self.ask("GET", f"/notifications/{user}{query}", who)
            assert status == 200, answer
            found[:] = answer["notifications"]
            return len(found) == count

        await until(there, timeout=PATIENCE, what=f"{count} notifications of {user}")
        return found

    async def delivered(self, told: str) -> None:
        async def settled() -> bool:
            # The person has it before the ledger knows.
            _, story = await self.ask("GET", f"/api/v1/notifications/{told}", ADMIN)
            return any(one["status"] == "delivered" for one in story["routes"])

        await until(settled, timeout=PATIENCE, what=f"{told} to be delivered")


@asynccontextmanager
async def standing(name: str, programs: list[Program]) -> AsyncIterator[Stand]:
    async with AsyncExitStack() as stack:
        for program in programs:
            stack.push_async_callback(asyncio.to_thread, program.close)
            await program.until("ready", timeout=90)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        yield Stand(name, programs, http, stack)


def started(name: str, folder: Path, url: str, *arguments: str, **environment: str) -> Program:
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"{name}.toml"
    config.write_text(f'extends = "{name}"\n{CATEGORIES if name == "listo" else ""}')
    given = {"DATABASE_URL": url, "CARILLON_HTTP__PORT": "0", "CARILLON_LEDGER__ALLOW_UNSAFE": "true"}
    given |= {"CARILLON_ALLOW_SANDBOX": "1"}
    given |= {"JWT_SECRET_KEY": SECRET, **environment}
    return Program("serve", "--config", str(config), *arguments, env=given, cwd=folder)


@pytest.fixture(scope="module")
def postgres(request: pytest.FixtureRequest) -> Iterator[str]:
    databases: Databases = request.getfixturevalue("databases")
    dsn, give_back = databases.take()
    yield str(dsn)
    give_back()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["local", "listo"])
async def stand(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stand]:
    name, folder = request.param, tmp_path_factory.mktemp("inbox")
    url = f"sqlite:///{folder}/i.db" if name == "local" else request.getfixturevalue("postgres")
    programs = [started(name, folder / str(number), url) for number in range(1 if name == "local" else 2)]
    async with standing(name, programs) as running:
        yield running


async def test_a_message_comes_live_to_every_window_and_stays(stand: Stand) -> None:
    ada = token("ada", tenant="acme")
    windows = [await stand.window(ada, at=number) for number in (0, 1)]
    told = await stand.sent("ada")
    for window in windows:
        (frame,) = await window.gets("notification")
        assert (frame["notification_id"], frame["payload"]) == (told, PARTS)
    (shown,) = await stand.shown("ada", ada, 1)
    assert (shown["payload"], shown["is_read"], shown["is_archived"]) == (PARTS, False, False)
    status, _ = await stand.ask("POST", f"/notifications/{told}/ack", ada)
    assert status == 200
    await stand.delivered(told)


async def test_a_person_who_was_away_finds_it_and_a_text_without_parts_is_what_the_template_says(stand: Stand) -> None:
    await stand.sent("away", inApp=None)
    (shown,) = await stand.shown("away", token("away", tenant="acme"), 1)
    assert set(shown["payload"]) == {"title", "body"}
    window = await stand.window(token("away", tenant="acme"), "?last_event_id=0")
    (frame,) = await window.gets("notification")
    assert frame["payload"] == shown["payload"]


OPERATIONS = [
    ("GET", "", None),
    ("GET", "/unread", None),
    ("POST", "/read", {}),
    ("POST", "/archive", {}),
    ("GET", "/preferences", None),
    ("PATCH", "/preferences", {"categories": {"orders": {"email": False}}}),
]


async def test_nobody_else_sees_or_changes_an_inbox(stand: Stand) -> None:
    told = await stand.sent("own")
    mine, same_name = token("own", tenant="acme"), token("own", tenant="globex")
    await stand.shown("own", mine, 1)
    for method, rest, body in OPERATIONS:
        for stranger in (token("other", tenant="acme"), token("own-2")):
            status, answer = await stand.ask(method, f"/notifications/own{rest}", stranger, body)
            assert (status, answer["error"]["code"]) == (403, "FORBIDDEN"), (method, rest)
        assert (await stand.ask(method, f"/notifications/own{rest}", {}, body))[0] == 401
    # Somebody of the same name in another tenant, and somebody without one, have inboxes of their own.
    for namesake in (same_name, token("own")):
        assert await stand.shown("own", namesake, 0) == []
        for what in ("read", "archive"):
            _, answer = await stand.ask("POST", f"/notifications/own/{what}", namesake, {"notification_ids": [told]})
            assert 0 in answer.values()
        assert (await stand.ask("POST", f"/notifications/{told}/ack", namesake))[0] == 404
    (shown,) = await stand.shown("own", mine, 1)
    assert (shown["is_read"], shown["is_archived"], shown["is_delivered"]) == (False, False, False)


async def test_nobody_writes_into_the_inbox_of_somebody_else(stand: Stand) -> None:
    # A person's own token sends to that person, whatever the address says.
    status, _ = await stand.send(token("mallory", tenant="acme"), recipient="victim")
    assert status in {202, 403}
    if status == 202:
        await stand.shown("mallory", token("mallory", tenant="acme"), 1)
    # An address cannot pretend to hold a tenant.
    status, answer = await stand.send(token("root", role="admin"), recipient="acme\x1fvictim")
    assert (status, answer["error"]["code"]) == (400, "VALIDATION_ERROR")
    await stand.sent("victim")
    (shown,) = await stand.shown("victim", token("victim", tenant="acme"), 1)
    assert shown["payload"] == PARTS


@pytest.mark.req("P-561")
async def test_what_is_read_and_archived_is_told_to_the_other_window(stand: Stand) -> None:
    eve = token("eve", tenant="acme")
    ids = [await stand.sent("eve") for _ in range(3)]
    await stand.shown("eve", eve, 3)
    window = await stand.window(eve, at=1)
    assert (await stand.ask("POST", "/notifications/eve/read", eve, {"notification_ids": ids[:2]}))[1]["marked"] == 2
    await window.gets("changed", 1)
    # Without names only what is read goes to the archive.
    assert (await stand.ask("POST", "/notifications/eve/archive", eve))[1] == {"user_id": "eve", "moved": 2}
    await window.gets("changed", 2)
    (left,) = await stand.shown("eve", eve, 1)
    assert left["notification_id"] == ids[2]
    assert (await stand.ask("GET", "/notifications/eve/unread", eve))[1] == {"user_id": "eve", "total": 1, "unread": 1}
    archived = await stand.shown("eve", eve, 2, "?archived=true")
    assert {each["notification_id"] for each in archived} == set(ids[:2])
    back = {"notification_ids": [ids[0]], "archived": False}
    assert (await stand.ask("POST", "/notifications/eve/archive", eve, back))[1]["moved"] == 1
    unread = {"notification_ids": [ids[0]], "read": False}
    assert (await stand.ask("POST", "/notifications/eve/read", eve, unread))[1]["marked"] == 1
    assert (await stand.ask("GET", "/notifications/eve/unread", eve))[1]["unread"] == 2
    # What changes nothing is told to nobody.
    heard = len(await window.gets("changed", 4))
    assert (await stand.ask("POST", "/notifications/eve/archive", eve, back))[1]["moved"] == 0
    await stand.sent("eve")
    await window.gets("notification")
    assert len(await window.gets("changed")) == heard


@pytest.mark.req("P-320", "P-561")
async def test_who_reads_it_in_the_inbox_gets_it_on_no_other_channel(stand: Stand) -> None:
    chain: dict[str, Any] = {
        "channel": None,
        "channels": ["inApp", "push"],
        "until": "read",
        "after": "1h",
        "inApp": None,
    }
    pat, told = token("pat", tenant="acme"), dict[str, str]()
    for user in ("pat", "quinn"):
        contacts = {"contacts": {"pushToken": f"device-{user}"}}
        path = f"/api/v1/preferences/user/{user}?tenantId=acme"
        status, answer = await stand.ask("PUT", path, ADMIN, contacts)
        assert status in {200, 201, 204}, answer
        told[user] = await stand.sent(user, **chain)
    await stand.shown("pat", pat, 1)
    await stand.shown("quinn", token("quinn", tenant="acme"), 1)

    async def push_of(user: str) -> tuple[str, str | None]:
        _, story = await stand.ask("GET", f"/api/v1/notifications/{told[user]}", ADMIN)
        (route,) = [one for one in story["routes"] if one["channel"] == "push"]
        return route["status"], route.get("gate")

    await stand.delivered(told["pat"])
    assert (await stand.ask("POST", "/notifications/pat/read", pat, {}, at=1))[1]["marked"] == 1

    async def reached() -> bool:
        return await push_of("pat") == ("skipped", "reached")

    await until(reached, timeout=PATIENCE, what="no push to pat")
    assert await push_of("quinn") == ("queued", None), "what one person reads says nothing about another"
    assert (await stand.ask("POST", "/notifications/pat/read", pat, {}))[1]["marked"] == 0


@pytest.mark.req("P-561")
async def test_choices_inside_the_inbox_are_those_of_the_preferences(stand: Stand) -> None:
    carl = token("carl", tenant="acme")
    _, shown = await stand.ask("GET", "/notifications/carl/preferences?locale=de", carl)
    orders = next(row for row in shown["categories"] if row["name"] == "orders")
    assert (orders["title"], orders["ways"]["inApp"], orders["required"]) == ("Bestellungen", True, False)
    status, answer = await stand.ask(
        "PATCH", "/notifications/carl/preferences", carl, {"categories": {"security": {"inApp": False}}}
    )
    assert (status, answer["error"]["code"]) == (400, "VALIDATION_ERROR")
    off = {"categories": {"orders": {"inApp": False}}}
    status, changed = await stand.ask("PATCH", "/notifications/carl/preferences", carl, off)
    assert (status, next(row for row in changed["categories"] if row["name"] == "orders")["ways"]["inApp"]) == (
        200,
        False,
    )
    _, same = await stand.ask("GET", "/api/v1/preferences", carl)
    assert same["categories"]["orders"]["inApp"] is False
    skipped = await stand.sent("carl", category="orders")
    kept = await stand.sent("carl")
    (shown_one,) = await stand.shown("carl", carl, 1)
    assert shown_one["notification_id"] == kept
    _, story = await stand.ask("GET", f"/api/v1/notifications/{skipped}", ADMIN)
    assert story["status"] == "skipped"


async def test_a_ticket_opens_a_window_and_shows_the_inbox(stand: Stand) -> None:
    dora = token("dora", tenant="acme")
    await stand.sent("dora")
    status, made = await stand.ask("POST", "/notifications/stream/tickets", dora)
    assert status == 201
    shows = f"?ticket={made['ticket']}"
    await stand.window({}, shows)
    for path in ("/notifications/dora", "/notifications/dora/unread", "/notifications/dora/preferences"):
        assert (await stand.ask("GET", path + shows, {}))[0] == 200, path
    assert (await stand.ask("POST", f"/notifications/dora/archive{shows}", {}, {}))[0] == 200
    assert (await stand.ask("GET", f"/notifications/other{shows}", {}))[0] == 403
    # A ticket stands in a URL: it opens neither contacts nor quiet hours.
    assert (await stand.ask("GET", f"/api/v1/preferences{shows}", {}))[0] in {400, 401}


async def test_pages_of_the_inbox_follow_one_another(stand: Stand) -> None:
    finn = token("finn", tenant="acme")
    for _ in range(5):
        await stand.sent("finn")
    everything = await stand.shown("finn", finn, 5)
    first = await stand.shown("finn", finn, 2, "?limit=2")
    rest = await stand.shown("finn", finn, 3, f"?limit=4&before={first[-1]['seq']}")
    assert [each["seq"] for each in first + rest] == [each["seq"] for each in everything] == [5, 4, 3, 2, 1]


@pytest.mark.req("P-613")
async def test_a_cursor_goes_on_in_the_inbox_and_in_the_archive_of_the_person_only(stand: Stand) -> None:
    finn, greta = token("fips", tenant="acme"), token("greta", tenant="acme")
    namesake = token("fips", tenant="globex")
    for user, number in (("fips", 5), ("greta", 3)):
        for _ in range(number):
            await stand.sent(user)
        await stand.shown(user, {"fips": finn, "greta": greta}[user], number)

    async def walked(user: str, who: dict[str, str], query: str = "") -> tuple[list[int], str]:
        seen: list[int] = []
        cursor = last = ""
        while True:
            status, page = await stand.ask("GET", f"/notifications/{user}?limit=1{query}{cursor}", who)
            assert (status, page["count"]) == (200, len(page["notifications"])), page
            seen += [one["seq"] for one in page["notifications"]]
            if page["next_cursor"] is None:
                return seen, last
            last = page["next_cursor"]
            cursor = f"&cursor={last}"

    seqs, cursor = await walked("fips", finn)
    assert seqs == [5, 4, 3, 2, 1]
    assert (await walked("greta", greta))[0] == [3, 2, 1]
    own = {one["notification_id"] for one in await stand.shown("fips", finn, 5)}
    for who, user in ((greta, "greta"), (namesake, "fips")):
        _, page = await stand.ask("GET", f"/notifications/{user}?cursor={cursor}", who)
        assert not {one["notification_id"] for one in page["notifications"]} & own
    assert (await stand.ask("GET", f"/notifications/fips?cursor={cursor}", greta))[0] == 403
    await stand.ask("POST", "/notifications/fips/read", finn, {})
    await stand.ask("POST", "/notifications/fips/archive", finn, {})
    assert (await walked("fips", finn, "&archived=true"))[0] == [5, 4, 3, 2, 1]
    refused = (
        (f"cursor={cursor}&archived=true", "not one of this list"),
        (f"cursor={cursor}&before=3", "exclude each"),
    )
    for query, said in (*refused, ("cursor=A", "this cursor is not one of this list")):
        status, answer = await stand.ask("GET", f"/notifications/fips?{query}", finn)
        assert (status, said in answer["error"]["message"]) == (400, True), answer


async def test_two_processes_on_one_file_reach_each_others_windows(tmp_path: Path) -> None:
    """Without a bus between them each process looks into the file."""
    url, port = f"sqlite:///{tmp_path}/i.db", str(free_port())
    program = started("local", tmp_path, url, "--processes", "2", CARILLON_HTTP__PORT=port)
    async with standing("local", [program]) as stand:

        async def both() -> bool:
            return len([line for line in program.lines if line.get("event") == "ready"]) > 1

        await until(both, timeout=90, what="two processes")
        # The kernel spreads the connections over the processes.
        windows = [await stand.window(token("ada", tenant="acme")) for _ in range(12)]
        told = await stand.sent("ada")
        for window in windows:
            assert [data["notification_id"] for data in await window.gets("notification")] == [told]


async def test_an_open_window_does_not_hold_up_the_end(tmp_path: Path) -> None:
    program = started("local", tmp_path, f"sqlite:///{tmp_path}/i.db")
    async with standing("local", [program]) as stand:
        window = await stand.window(token("ada", tenant="acme"))
        program.terminate()
        assert await asyncio.to_thread(program.wait, 15) == 0
        assert [data["reason"] for data in await window.gets("closing")] == ["shutdown"]
        assert [line for line in program.lines if line.get("level") in {"error", "warning"}] == []
