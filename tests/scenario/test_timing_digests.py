"""Digests from outside: events of one person in one message, under moved time, on both engines and over HTTP."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import carillon
from carillon.client import Rejected
from carillon.domain.digests import told_over, window_end
from carillon.testing import Outbox
from tests.support.waiting import until, wait_until

pytestmark = pytest.mark.req("P-303")

DATA = {"name": "Ada", "link": "https://example.org/"}
TEXT = "{{count}} new, the last by {{name}}: {{link}}"


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    folder = tmp_path / "templates" / "news" / "en-US" / "email"
    folder.mkdir(parents=True)
    (folder / "subject.tmpl").write_text("{{count}} comments")
    (folder / "text.tmpl").write_text(TEXT)
    config = tmp_path / "carillon.toml"
    config.write_text(f'extends = "local"\n[templates]\nfolders = ["{tmp_path / "templates"}"]\n')
    with Outbox(tmp_path, config) as outbox:
        yield outbox


def comment(outbox: Outbox, who: str, to: str = "ada@example.org", **more: Any) -> str:
    digest = {"key": "comments", "window": "1h", **more.pop("digest", {})}
    about = {"channel": "email", "recipient": to, "data": {**DATA, "name": who}, "digest": digest, **more}
    return outbox.send("news", **about).notification_id


def test_one_message_tells_all_events_and_the_stories_name_each_other(outbox: Outbox) -> None:
    events = [comment(outbox, who) for who in ("Bob", "Cid", "Dan")]
    other = comment(outbox, "Eve", to="bob@example.org")
    outbox.assert_nothing_sent()
    outbox.clock.advance("1h")
    told = outbox.assert_sent("news", recipient="ada@example.org", containing="3 new, the last by Dan")[0]
    outbox.assert_sent("news", recipient="bob@example.org", containing="1 new, the last by Eve")
    digest = outbox.wait(told.notification_id)
    assert digest.metadata["digest"] == {"key": "comments", "count": 3, "members": events}
    assert [item["name"] for item in digest.data["items"]] == ["Bob", "Cid", "Dan"]
    for event in (*events, other):
        (route,) = outbox.wait(event).routes
        assert route.gate == "digest"
    (route,) = outbox.wait(events[0]).routes
    assert route.last_error == f"told in digest {told.notification_id}"


def test_a_full_digest_does_not_wait(outbox: Outbox) -> None:
    for who in ("Bob", "Cid"):
        comment(outbox, who, digest={"max": 2})
    outbox.assert_sent("news", containing="2 new")


def test_without_a_digest_each_is_told_alone(outbox: Outbox) -> None:
    """The control: the window is what they wait for."""
    outbox.send("news", channel="email", recipient="ada@example.org", data={**DATA, "count": 1})
    outbox.assert_sent("news", containing="1 new")


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": "soon"},
        {"window": "61 9 * * *"},
        {"window": "0"},
        {"key": ""},
        {"max": 0},
        {"max": 1001},
        {"more": 1},
    ],
)
def test_a_wrong_wish_is_refused(outbox: Outbox, wrong: dict[str, Any]) -> None:
    with pytest.raises(Rejected) as refused:
        comment(outbox, "Bob", digest=wrong)
    assert refused.value.code == "VALIDATION_ERROR"


def test_a_template_that_cannot_tell_a_digest_refuses_its_first_event(outbox: Outbox) -> None:
    with pytest.raises(Rejected) as refused:
        outbox.send(
            "news",
            channel="email",
            recipient="ada@example.org",
            data={"name": "Bob"},
            digest={"key": "comments", "window": "1h"},
        )
    assert refused.value.code == "TEMPLATE_RENDER_ERROR"


async def test_on_postgresql_too(postgres_dsn: str) -> None:
    environ = {"CARILLON_LEDGER__ALLOW_UNSAFE": "1"}
    async with carillon.open(str(postgres_dsn), environ=environ) as engine:
        digest = {"key": "welcomes", "window": "1h", "max": 2}
        for name in ("Ada", "Bob"):
            about = {"channel": "email", "recipient": "x@example.org", "data": {**DATA, "name": name}, "digest": digest}
            accepted = await engine.send("welcome", **about)
        found = await engine.wait(accepted.notification_id)
        told = str(found.routes[0].last_error).removeprefix("told in digest ")

        async def closed() -> bool:
            await engine.hasten(1.0)
            return await engine.get(told) is not None

        await until(closed, timeout=40, what="the digest")
        digest_story = await engine.wait(told)
        assert (digest_story.status, digest_story.data["count"]) == ("delivered", 2)


NOW = datetime(2027, 3, 27, 23, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("window", "zone", "ends"),
    [
        ("90m", None, "2027-03-28T00:30:00+00:00"),
        ("PT1H", "Asia/Tokyo", "2027-03-28T00:00:00+00:00"),
        ("0 9 * * *", None, "2027-03-28T09:00:00+00:00"),
        ("0 9 * * *", "Asia/Tokyo", "2027-03-28T00:00:00+00:00"),
        # The night in which Berlin's clocks go forward: nine o'clock is an hour earlier than the day before.
        ("0 9 * * *", "Europe/Berlin", "2027-03-28T07:00:00+00:00"),
        ("0 9 * * 1", "America/New_York", "2027-03-29T13:00:00+00:00"),
    ],
)
def test_a_window_ends_after_a_duration_or_at_the_persons_own_time(window: str, zone: str | None, ends: str) -> None:
    assert datetime.fromtimestamp(window_end(window, NOW, zone), UTC).isoformat() == ends


def test_the_newest_event_fills_what_a_template_asks_beside_the_items() -> None:
    assert told_over([{"a": 1, "b": 2}, {"a": 3}]) == {"a": 3, "items": [{"a": 1, "b": 2}, {"a": 3}], "count": 2}


@pytest.mark.req("P-1100")
def test_a_repeat_of_an_event_is_answered_as_the_first(outbox: Outbox) -> None:
    digest = {"key": "comments", "window": "1h"}
    about = {"channel": "email", "recipient": "ada@example.org", "data": DATA, "digest": digest}
    first, again = [outbox.send("news", idempotency_key="once", **about) for _ in range(2)]
    assert (first.status, first.skipped) == ("queued", [])
    assert (again.replayed, again.status, again.skipped) == (True, "queued", [])


@pytest.mark.req("P-1101")
def test_an_event_has_no_schedule(outbox: Outbox) -> None:
    with pytest.raises(Rejected, match="the window says when it is told") as refused:
        comment(outbox, "Bob", scheduled_for="2090-01-01T09:00:00Z")
    assert refused.value.code == "VALIDATION_ERROR"
    # A time in the past means now.
    comment(outbox, "Cid", scheduled_for="2020-01-01T09:00:00Z")
    outbox.clock.advance("1h")
    outbox.assert_sent("news", containing="1 new, the last by Cid")


@pytest.mark.req("P-1110")
def test_the_stories_of_a_digest_that_cannot_be_told_say_so(outbox: Outbox) -> None:
    outbox.prefer("ada", contacts={"email": "ada@example.org"})
    about = {"channel": "email", "user_id": "ada", "data": DATA, "digest": {"key": "comments", "window": "1h"}}
    event = outbox.send("news", **about).notification_id
    told = str(outbox.wait(event).routes[0].last_error).removeprefix("told in digest ")
    outbox.prefer("ada", channels={"email": False})
    outbox.clock.advance("1h")
    wait_until(
        lambda: outbox.wait(event).routes[0].last_error != f"told in digest {told}", timeout=20, what="the digest"
    )
    (route,) = outbox.wait(event).routes
    assert (route.status, route.gate) == ("skipped", "digest")
    assert route.last_error == f"digest {told} could not be told: the digest has the reason"
    assert outbox.get(told) is None
    outbox.assert_nothing_sent()
