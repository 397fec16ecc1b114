"""Cancelling, changing, preferences and explain in Python: the clients, embedded and the pytest plugin, alike."""

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import carillon
from carillon.client import Accepted, AsyncClient, Client, Explanation, Notification, Rejected, WaitingCount
from carillon.testing import Outbox
from tests.support.process import Program

FAR, FARTHER = "2096-01-31T18:00:00Z", "2097-01-31T18:00:00.000Z"
DATA = {"name": "Ada", "link": "https://example.org/"}
SETTINGS = """extends = "local"
[preferences]
quiet_hours = true
[categories.offers]
[consent]
keys = ["a key of this test, thirty-two characters"]
url = "https://messages.example.org"
"""
WAYS = ["client", "async client", "embedded", "outbox"]


class Way(Protocol):
    """What every way into Carillon from Python has."""

    def send(self, template_key: str, /, **about: Any) -> Accepted: ...
    def get(self, notification_id: str) -> Notification | None: ...
    def explain(self, template_key: str, /, **about: Any) -> Explanation: ...
    def cancel(self, notification_id: str) -> int: ...
    def cancel_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount: ...
    def change_waiting(self, *, dry_run: bool = False, **selected: Any) -> WaitingCount: ...
    def prefer(self, user_id: str, tenant_id: str | None = None, **wishes: Any) -> None: ...


class Awaited:
    """An asynchronous way, called from plain code."""

    def __init__(self, runner: asyncio.Runner, target: Any) -> None:
        self._runner, self._target = runner, target

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self._runner.run(getattr(self._target, name)(*given, **named))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "c.toml").write_text(SETTINGS)
    environ = {"DATABASE_URL": f"sqlite:///{folder}/c.db", "CARILLON_HTTP__PORT": "0"}
    with Program("serve", "--config", str(folder / "c.toml"), env=environ, cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Way]:
    (tmp_path / "c.toml").write_text(SETTINGS)
    if request.param == "outbox":
        with Outbox(tmp_path, tmp_path / "c.toml") as outbox:
            yield outbox
        return
    if request.param == "embedded":
        with asyncio.Runner() as runner:
            opened = carillon.open(str(tmp_path / "app.db"), config=tmp_path / "c.toml", environ={})
            yield Awaited(runner, runner.run(opened.__aenter__()))
            runner.run(opened.__aexit__(None, None, None))
        return
    program: Program = request.getfixturevalue("program")
    address = str(program.wait_ready(60)["addresses"][0])
    if request.param == "client":
        with Client(address) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        asynchronous = AsyncClient(address)
        yield Awaited(runner, asynchronous)
        runner.run(asynchronous.aclose())


def later(way: Way, recipient: str, **more: Any) -> str:
    asked = {"channel": "email", "recipient": recipient, "data": DATA, "scheduled_for": FAR, **more}
    return way.send("welcome", **asked).notification_id


def route(way: Way, name: str) -> tuple[str, str | None, str | None]:
    found = way.get(name)
    assert found is not None
    return found.routes[0].status, found.routes[0].gate, found.routes[0].next_attempt_at


@pytest.mark.req("P-944")
def test_what_waits_is_counted_changed_and_cancelled(way: Way, request: pytest.FixtureRequest) -> None:
    mine = f"{request.node.callspec.params['way'].replace(' ', '-')}@example.org"
    first = later(way, mine, collapse_key=f"score-{mine}", idempotency_key=f"key-{mine}")
    other = later(way, mine, service_origin="shop", idempotency_key=f"other-{mine}")
    counted = way.cancel_waiting(idempotency_key=f"key-{mine}", dry_run=True)
    assert counted == WaitingCount(notifications=1, waiting=1, too_late=0, done=0)
    moved = way.change_waiting(collapse_key=f"score-{mine}", scheduled_for=FARTHER)
    assert (moved.notifications, moved.done) == (1, 1)
    assert route(way, first) == ("queued", None, FARTHER)
    assert way.cancel_waiting(notification_id=first).done == 1
    assert route(way, first)[:2] == ("skipped", "cancelled")
    assert route(way, other)[0] == "queued", "nothing else was cancelled"
    assert way.cancel(other) == 1
    assert way.cancel(other) == 0


@pytest.mark.req("P-944")
@pytest.mark.parametrize(
    ("verb", "selected", "words"),
    [
        ("cancel_waiting", {}, "say which notifications: give an id, a key or a filter"),
        ("change_waiting", {"user_id": "ada"}, "give scheduledFor, expiresAt or ttl"),
        (
            "change_waiting",
            {"user_id": "ada", "ttl": "soon"},
            "ttl must be a duration above zero such as 90, 10m, 1h or PT10M",
        ),
    ],
)
def test_every_way_refuses_in_the_same_words(way: Way, verb: str, selected: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected) as refused:
        getattr(way, verb)(**selected)
    assert refused.value.code == "VALIDATION_ERROR"
    assert words in str(refused.value)


@pytest.mark.req("P-944", "P-204")
def test_what_a_person_has_left_is_explained_and_skipped(way: Way) -> None:
    way.prefer(
        "ada/b",
        contacts={"email": "ada@example.org"},
        channels={"sms": False},
        categories={"offers": {"email": False}},
        time_zone="Asia/Tokyo",
        quiet_hours={"start_time": "22:00", "end_time": "07:00"},
    )
    asked = {"channel": "email", "user_id": "ada/b", "data": DATA, "category": "offers"}
    said = way.explain("welcome", **asked)
    assert (said.outcome, said.routes[0].gate) == ("skipped", "category")
    assert way.send("welcome", **asked).status == "skipped"
    with pytest.raises(Rejected, match="there is no category noise"):
        way.prefer("ada/b", categories={"noise": {"email": False}})


@pytest.mark.req("P-1051", "P-944")
def test_what_a_route_waits_for_and_until_when_is_told_in_every_way(way: Way, request: pytest.FixtureRequest) -> None:
    mine = request.node.callspec.params["way"].replace(" ", "-")
    hours = [f"{dt.datetime.now(dt.UTC) + dt.timedelta(hours=far):%H:%M}" for far in (-1, 1)]
    quiet = {"start_time": hours[0], "end_time": hours[1], "timezone": "UTC"}
    way.prefer(mine, contacts={"email": f"quiet-{mine}@example.org"}, quiet_hours=quiet)
    name = way.send("welcome", channel="email", user_id=mine, data=DATA, expires_at=FAR).notification_id
    found = way.get(name)
    assert found is not None
    assert (found.routes[0].gate, str(found.routes[0].waits_for)[:27]) == ("quiet_hours", "the end of quiet hours at 2")
    assert found.expires_at == "2096-01-31T18:00:00.000Z"
    later_one = way.get(later(way, f"far-{mine}@example.org"))
    assert later_one is not None
    assert later_one.scheduled_for == "2096-01-31T18:00:00.000Z"


@pytest.mark.req("P-944", "P-210")
def test_the_clients_make_the_link_to_a_persons_page(program: Program) -> None:
    address = str(program.wait_ready(60)["addresses"][0])
    with Client(address) as client:
        assert client.preference_link("ada/b").startswith("https://messages.example.org/u/")
