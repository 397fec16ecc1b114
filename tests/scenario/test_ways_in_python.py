"""Every call in Python: the clients, an embedded Carillon and the pytest plugin, alike."""

import asyncio
import datetime as dt
import inspect
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import carillon
from carillon.client import AsyncClient, Client, Item, Rejected, WaitingCount
from carillon.embedded import Embedded
from carillon.testing import Outbox
from tests.support.process import Program
from tests.support.smtp import SmtpServer

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
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
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


def later(way: Any, recipient: str, **more: Any) -> str:
    asked = {"channel": "email", "recipient": recipient, "data": DATA, "scheduled_for": FAR, **more}
    return str(way.send("welcome", **asked).notification_id)


def route(way: Any, name: str) -> tuple[str, str | None, str | None]:
    found = way.get(name)
    assert found is not None
    return found.routes[0].status, found.routes[0].gate, found.routes[0].next_attempt_at


@pytest.mark.req("P-944")
def test_what_waits_is_counted_changed_and_cancelled(way: Any, request: pytest.FixtureRequest) -> None:
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
def test_every_way_refuses_in_the_same_words(way: Any, verb: str, selected: dict[str, Any], words: str) -> None:
    with pytest.raises(Rejected) as refused:
        getattr(way, verb)(**selected)
    assert refused.value.code == "VALIDATION_ERROR"
    assert words in str(refused.value)


@pytest.mark.req("P-944", "P-204")
def test_what_a_person_has_left_is_explained_and_skipped(way: Any) -> None:
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
def test_what_a_route_waits_for_and_until_when_is_told_in_every_way(way: Any, request: pytest.FixtureRequest) -> None:
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


@pytest.mark.req("P-1085")
def test_a_suppressed_address_is_listed_lifted_and_redriven_in_every_way(
    way: Any, request: pytest.FixtureRequest
) -> None:
    mine = f"left-{request.node.callspec.params['way'].replace(' ', '-')}@example.org"
    made = way.suppress("email", mine, "asked on the phone", expires_at="2096-01-31T18:00:00Z")
    assert (made.kind, made.address, made.expires_at) == ("manual", mine, "2096-01-31T18:00:00.000Z")
    assert [one.id for one in way.suppressions(channel="email", address=mine).items] == [made.id]
    assert way.suppressions(address=mine, shared=True).total_count == 1, "it holds for every tenant"
    accepted = way.send("welcome", channel="email", recipient=mine, data=DATA)
    assert (accepted.status, accepted.skipped[0].suppression_id) == ("skipped", made.id)
    chosen = {"gate": "suppressed", "notification_ids": [accepted.notification_id]}
    still = way.redrive_skipped("the mailbox is back", **chosen)
    assert (still.matched, still.redriven, still.held) == (1, 0, {"suppressed": 1})
    assert way.lift_suppression("email", mine)
    assert not way.lift_suppression("email", mine), "there is nothing left to lift"
    counted = way.redrive_skipped("the mailbox is back", dry_run=True, **chosen)
    assert (counted.dry_run, counted.matched, counted.redriven) == (True, 1, 0)
    assert way.redrive_skipped("the mailbox is back", **chosen).redriven == 1
    assert way.wait(accepted.notification_id).status == "delivered"


@pytest.mark.req("P-1085")
def test_a_person_is_exported_and_erased_in_every_way(way: Any, request: pytest.FixtureRequest) -> None:
    name = f"eve/{request.node.callspec.params['way']}"
    address = f"eve-{request.node.callspec.params['way'].replace(' ', '-')}@example.org"
    way.prefer(name, contacts={"email": address}, time_zone="Asia/Tokyo", channels={"sms": False})
    way.prefer(name, contacts={"email": address}, replace=True)
    held = way.preferences(name)
    assert (held["contacts"], held["timeZone"], held["channels"]["sms"]) == (
        {"email": address},
        None,
        {"isEnabled": True},
    ), "what a replacement does not name is forgotten"
    assert way.preference_link(name).startswith("https://messages.example.org/u/")
    sent = [Item(template_key="welcome", channel="email", user_id=name, data=DATA, metadata={"n": n}) for n in range(3)]
    answers = way.send_many(sent)
    assert [(one.index, one.status) for one in answers] == [(n, "queued") for n in range(3)]
    for one in answers:
        way.wait(str(one.notification_id))
    kinds = [thing["what"] for thing in way.export_person(name)]
    assert kinds == ["person", "preferences", *["notification"] * 3]
    erased = way.erase_person(name)
    assert (erased.finished, erased.unfinished, erased.removed["records"]) == (True, [], 3)
    assert [thing["what"] for thing in way.export_person(name)] == ["person"]
    assert way.get(str(answers[0].notification_id)) is None
    assert way.erase_person(name).removed.get("records", 0) == 0, "to repeat it is safe"


@pytest.mark.req("P-1184", "P-1223")
@pytest.mark.parametrize(
    ("about", "status", "code"),
    [
        ({"template_key": "there.is.no.such"}, 404, "TEMPLATE_NOT_FOUND"),
        ({"channel": "pigeon"}, 400, "VALIDATION_ERROR"),
        ({"data": {"name": "a\x00b"}}, 400, "VALIDATION_ERROR"),
        ({"data": {}}, 400, "TEMPLATE_RENDER_ERROR"),
        ({"category": "noise"}, 422, "UNKNOWN_CATEGORY"),
        ({"idempotency_key": "k" * 256}, 400, "VALIDATION_ERROR"),
        ({"idempotency_key": "two words"}, 400, "VALIDATION_ERROR"),
        ({"idempotency_key": "two\nlines"}, 400, "VALIDATION_ERROR"),
        ({"idempotency_key": "ключ"}, 400, "VALIDATION_ERROR"),
        ({"idempotency_key": "taken", "data": {**DATA, "name": "Bob"}}, 409, "IDEMPOTENCY_CONFLICT"),
    ],
)
def test_every_way_refuses_a_send_alike(way: Any, about: dict[str, Any], status: int, code: str) -> None:
    usual = {"channel": "email", "recipient": "ada@example.org", "data": DATA}
    way.send("welcome", idempotency_key="taken", **usual)
    asked = Item(**{"template_key": "welcome", **usual, **about})
    with pytest.raises(Rejected) as refused:
        way.send_item(asked)
    problem = refused.value.problem
    assert (refused.value.status, refused.value.code) == (status, code)
    assert (problem["status"], problem["error"]["code"]) == (status, code)
    assert str(refused.value) == f"{code}: {problem['error']['message']}"
    if "idempotency_key" in about and code == "VALIDATION_ERROR":
        with pytest.raises(Rejected, match="an idempotency key is 1 to 255 printable ASCII characters"):
            way.explain("welcome", **usual, **about)


@pytest.mark.req("P-1182")
def test_every_item_is_answered_also_where_none_is_accepted(way: Any) -> None:
    wrong = Item(template_key="there.is.no.such", channel="email", recipient="ada@example.org", data=DATA)
    (answer,) = way.send_many([wrong])
    assert (answer.status, answer.error.code) == ("rejected", "TEMPLATE_NOT_FOUND")
    long = Item(
        template_key="welcome", channel="email", recipient="ada@example.org", data={**DATA, "more": "x" * 90_000}
    )
    huge = Item(
        template_key="welcome", channel="email", recipient="ada@example.org", data={**DATA, "more": "x" * 5_000_000}
    )
    answers = way.send_many([long, wrong, long, long, huge, long])
    assert [one.index for one in answers] == list(range(6))
    assert [one.error and one.error.code for one in answers] == [
        *(None, "TEMPLATE_NOT_FOUND", None, None),
        *("PAYLOAD_TOO_LARGE", None),
    ]
    assert way.send_many([]) == []


@pytest.mark.req("P-1220")
def test_an_item_that_makes_its_request_unreadable_costs_no_other(way: Any) -> None:
    usual: dict[str, Any] = {"template_key": "welcome", "channel": "email", "recipient": "ada@example.org"}
    deep: Any = []
    for _ in range(40):
        deep = [deep]
    items = [Item(**usual, data=DATA) for _ in range(7)]
    items[2] = Item(**usual, data={**DATA, "name": "a\x00b"})
    items[5] = Item(**usual, data={**DATA, "deep": deep})
    answers = way.send_many(items)
    assert [one.index for one in answers] == list(range(7))
    assert [one.status for one in answers] == ["queued", "queued", "rejected", "queued", "queued", "rejected", "queued"]
    assert [one.error.message for one in answers if one.error] == [
        "text contains U+0000 or a lone surrogate",
        "JSON is nested deeper than 32 levels",
    ]
    unsaid = [Item(**usual, data=DATA, user_id="nobody-hears"), Item(**usual, data={"no": object()})]
    with pytest.raises(TypeError):
        way.send_many([unsaid[0]] * 500 + unsaid)
    assert way.search(user_id="nobody-hears").total_count == 0, "an item that is no JSON is refused before any is sent"


@pytest.mark.req("P-1184")
def test_attempts_are_told_in_every_way(way: Any) -> None:
    sent = way.send("welcome", channel="email", recipient="ada@example.org", data=DATA)
    way.wait(sent.notification_id)
    told = way.get(sent.notification_id, attempts=True)
    assert [one.outcome for one in told.routes[0].attempts] == ["sent"]
    assert way.get(sent.notification_id, attempts=False).routes[0].attempts == []


@pytest.mark.req("P-1085", "P-1184")
@pytest.mark.parametrize("kind", [AsyncClient, Embedded, Outbox])
def test_every_call_takes_the_same_arguments(kind: type) -> None:
    for name in (one for one in dir(Client) if not one.startswith("_") and one != "close"):
        wanted = inspect.signature(getattr(Client, name)).parameters.keys()
        assert wanted <= inspect.signature(getattr(kind, name)).parameters.keys(), name


@pytest.mark.req("P-1085")
def test_every_way_has_every_call_of_the_client() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}

    of_connection = {"close", "aclose"}
    assert calls(Client) - of_connection == calls(AsyncClient) - of_connection
    for kind in (Embedded, Outbox):
        assert calls(Client) - of_connection <= calls(kind)


@pytest.mark.req("P-1085")
def test_who_acts_through_an_embedded_carillon_is_named_in_the_trail(tmp_path: Path) -> None:
    with Outbox(tmp_path) as outbox:
        outbox.suppress("email", "ada@example.org", "asked on the phone")
        with closing(sqlite3.connect(tmp_path / "outbox.db")) as ledger:
            trail = ledger.execute("SELECT actor, action FROM admin_actions").fetchall()
    assert trail == [("embedded", "suppress")]


@pytest.mark.req("P-1085")
@pytest.mark.parametrize("url", [None, "https://messages.example.org"])
async def test_an_embedded_carillon_names_no_page_that_nobody_serves(tmp_path: Path, url: str | None) -> None:
    consent = f'[consent]\nurl = "{url}"\n' if url else ""
    (tmp_path / "c.toml").write_text(f'[channels]\nemail = ["smtp"]\n{consent}')
    with SmtpServer(tls=False, credentials=None) as server:
        environ = {"SMTP_URL": server.url, "EMAIL_FROM": "bells@carillon.example"}
        opened = carillon.open(str(tmp_path / "app.db"), config=tmp_path / "c.toml", environ=environ)
        async with opened as engine:
            sent = await engine.send(
                "welcome", channel="email", recipient="ada@example.org", data=DATA, category="marketing"
            )
            assert (await engine.wait(sent.notification_id)).status == "delivered"
            left = server.mails[0].parsed()["List-Unsubscribe"]
            assert left is None if url is None else str(left).startswith(f"<{url}/u/")
            if url is None:
                with pytest.raises(Rejected, match=r"consent\.url"):
                    await engine.preference_link("ada")
            else:
                assert (await engine.preference_link("ada")).startswith(f"{url}/u/")
