"""What quiet hours hold, what expires and what is changed: named by story and explain alike, on both engines."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.blueprint_stand import database
from tests.support.client import Client
from tests.support.process import Program

SETTINGS = """extends = "local"
[preferences]
quiet_hours = true
[categories.alarm]
urgent = true
"""
DATA = {"name": "Ada", "link": "https://example.org/"}
FAR = "2096-01-31T18:00:00.000Z"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("stories")
    (folder / "c.toml").write_text(SETTINGS)
    for url in database(request, folder):
        environ = {"DATABASE_URL": url, "CARILLON_HTTP__PORT": "0", "CARILLON_LEDGER__ALLOW_UNSAFE": "1"}
        with Program("serve", "--config", str(folder / "c.toml"), env=environ, cwd=folder) as running:
            running.wait_ready(60)
            yield Client.of(running)


def until_tomorrow(client: Client, user: str, *, quiet: bool = True) -> dt.datetime:
    """Somebody whose quiet hours began an hour ago; returns their end."""
    now = dt.datetime.now(dt.UTC)
    begins, ends = now - dt.timedelta(hours=1), (now + dt.timedelta(hours=6)).replace(second=0, microsecond=0)
    hours = {"startTime": f"{begins:%H:%M}", "endTime": f"{ends:%H:%M}", "timezone": "UTC"}
    contacts = {"email": f"{user}@example.org", "pushToken": f"device-{user}"}
    said = {"contacts": contacts, "quietHours": hours if quiet else None}
    assert client.call("PUT", f"/api/v1/preferences/user/{user}", said).status == 200
    return ends


def asked(user: str, **more: Any) -> dict[str, Any]:
    where = {} if "channels" in more else {"channel": "push"}
    return {"templateKey": "welcome", "userId": user, "data": DATA, **where, **more}


def send(client: Client, user: str, **more: Any) -> str:
    answer = client.call("POST", "/api/v1/notifications/send", asked(user, **more))
    assert answer.status == 202, answer
    return str(answer.body["notificationId"])


def explained(client: Client, user: str, **more: Any) -> dict[str, Any]:
    (route,) = client.call("POST", "/api/v1/notifications/explain", asked(user, **more)).body["routes"]
    return dict(route)


def routes(client: Client, name: str) -> dict[str, Any]:
    return {one["channel"]: one for one in client.get(f"/api/v1/notifications/{name}").body["routes"]}


def change(client: Client, name: str, **more: str) -> None:
    said = client.call("POST", "/api/v1/notifications/change", {"notificationId": name, **more}).body
    assert said["done"] >= 1, said


def moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


@pytest.mark.req("P-940")
def test_a_story_names_the_quiet_hours_that_hold_it(client: Client) -> None:
    ends = until_tomorrow(client, "ada")
    name = send(client, "ada")
    route = routes(client, name)["push"]
    assert (route["status"], route["gate"]) == ("queued", "quiet_hours")
    assert moment(route["nextAttemptAt"]) == ends
    assert route["waitsFor"] == f"the end of quiet hours at {route['nextAttemptAt']}"
    (listed,) = client.get("/api/v1/notifications?userId=ada").body["items"]
    assert listed["routes"][0]["gate"] == "quiet_hours"


@pytest.mark.req("P-940")
def test_what_is_scheduled_or_urgent_waits_for_no_quiet_hours(client: Client) -> None:
    """The control of the test above."""
    until_tomorrow(client, "bob")
    until_tomorrow(client, "eve", quiet=False)
    for user, more in (("bob", {"category": "alarm", "scheduledFor": FAR}), ("eve", {"scheduledFor": FAR})):
        route = routes(client, send(client, user, **more))["push"]
        assert (route["status"], route["gate"], route["waitsFor"]) == ("queued", None, None)


@pytest.mark.req("P-940")
def test_a_new_schedule_ends_the_wait_for_quiet_hours(client: Client) -> None:
    until_tomorrow(client, "kim")
    name = send(client, "kim")
    change(client, name, scheduledFor=FAR)
    route = routes(client, name)["push"]
    assert (route["gate"], route["nextAttemptAt"]) == (None, FAR)


@pytest.mark.req("P-940", "P-320")
def test_every_channel_of_a_chain_names_them(client: Client) -> None:
    ends = until_tomorrow(client, "zoe")
    name = send(client, "zoe", channels=["push", "email"], until="read", after="PT10M")
    found = routes(client, name)
    assert found["push"]["gate"] == "quiet_hours"
    # The second goes ten minutes after the first, when the quiet hours are over.
    assert found["email"]["gate"] is None
    assert moment(found["email"]["nextAttemptAt"]) == ends + dt.timedelta(minutes=10)


@pytest.mark.req("P-941")
@pytest.mark.parametrize("wish", [{"ttl": "1m"}, {"expiresAt": FAR, "scheduledFor": "2097-01-01T00:00:00Z"}])
def test_explain_names_the_gate_of_what_would_expire(client: Client, wish: dict[str, str]) -> None:
    until_tomorrow(client, "max")
    route = explained(client, "max", **wish)
    assert (route["outcome"], route["gate"]) == ("skipped", "expired")
    assert explained(client, "max", ttl="1d")["gate"] is None


@pytest.mark.req("P-942")
def test_a_later_expiry_brings_nothing_before_its_schedule(client: Client) -> None:
    until_tomorrow(client, "lea", quiet=False)
    name = send(client, "lea", scheduledFor=FAR, expiresAt="2095-01-01T00:00:00Z")
    assert routes(client, name)["push"]["nextAttemptAt"] == "2095-01-01T00:00:00.000Z", "it is due to be skipped"
    change(client, name, expiresAt="2097-01-01T00:00:00Z")
    assert routes(client, name)["push"]["nextAttemptAt"] == FAR


@pytest.mark.req("P-942", "P-940")
def test_a_longer_life_brings_nothing_into_quiet_hours(client: Client) -> None:
    ends = until_tomorrow(client, "ian")
    name = send(client, "ian", ttl="1h")
    held = routes(client, name)["push"]
    assert held["gate"] == "quiet_hours", "it expires while it waits for their end"
    change(client, name, ttl="2d")
    route = routes(client, name)["push"]
    assert (route["gate"], moment(route["nextAttemptAt"])) == ("quiet_hours", ends)
