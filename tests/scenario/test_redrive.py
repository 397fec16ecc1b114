"""Redrive over HTTP: listed dead letters or all, at a rate, with progress for every operator, and bounded."""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.client import WELCOME, Client, Reply
from tests.support.process import Program
from tests.support.servers import Postgres
from tests.support.waiting import wait_until

OVERRIDE = {"X-Admin-Override": "true"}
REFUSED = {"sandbox": {"outcome": "refused", "times": 1}}
MOST = 1000
PAGES = 620
"""More dead letters than one commit redrives, so that a caller can leave in the middle."""
PATIENCE = 40.0


@pytest.fixture(params=["sqlite", "postgres"], scope="module")
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    folder = tmp_path_factory.mktemp("redriving")
    dsn = f"sqlite:///{folder}/c.db"
    if request.param == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres")
        dsn = postgres.database()
    unsafe = {"CARILLON_LEDGER__ALLOW_UNSAFE": "true"}
    with Program("serve", env={"DATABASE_URL": dsn, "CARILLON_HTTP__PORT": "0", **unsafe}, cwd=folder) as running:
        running.wait_ready(60)
        yield running


@pytest.fixture
def client(program: Program) -> Client:
    return Client.of(program)


def dead(client: Client) -> int:
    return int(client.get("/api/v1/admin/failed-notifications?pageSize=1").body["totalCount"])


def bury(client: Client, number: int, how: dict[str, Any] = REFUSED) -> list[dict[str, str]]:
    """So many dead letters and no other, oldest first: the names of their routes."""
    redrive(client)
    settled(client)
    for at in range(0, number, 500):
        many = [{**WELCOME, "metadata": how} for _ in range(min(500, number - at))]
        assert client.call("POST", "/api/v1/notifications/batch", {"notifications": many}).status in {200, 202}
    found: list[Any] = []

    def buried() -> bool:
        page = client.get("/api/v1/admin/failed-notifications?pageSize=100").body
        found[:] = page["items"]
        return bool(page["totalCount"] == number)

    wait_until(buried, timeout=PATIENCE, what=f"{number} dead letters")
    return [{"notificationId": one["id"], "routeId": one["routeId"]} for one in reversed(found)]


def redrive(client: Client, **body: Any) -> Reply:
    return client.call("POST", "/api/v1/admin/redrive", {"reason": "it is back", **body}, OVERRIDE)


def newest(client: Client) -> Any:
    items = client.get("/api/v1/admin/redrives?pageSize=1").body["items"]
    return items[0] if items else {"id": None, "waiting": 0, "reason": None, "redriven": 0}


def settled(client: Client) -> Any:
    wait_until(lambda: newest(client)["waiting"] == 0, timeout=PATIENCE, what="nothing waits")
    return newest(client)


def test_only_what_was_named_is_redriven_and_it_is_written_down(client: Client) -> None:
    first, second, third = bury(client, 3)
    nobody = {"notificationId": "nobody", "routeId": "push:x"}
    elsewhere = {**third, "routeId": "push:token:another"}
    chosen = [first, second, first, nobody, elsewhere]
    counted = redrive(client, items=chosen, dryRun=True).body
    assert (counted["matched"], counted["redriven"], counted["actionId"]) == (2, 0, None)
    done = redrive(client, items=chosen, reason="these two").body
    assert (done["matched"], done["redriven"]) == (2, 2)
    seen = settled(client)
    assert (seen["id"], seen["reason"], seen["actor"]) == (done["actionId"], "these two", "anonymous")
    assert (seen["chosen"], seen["matched"], seen["redriven"]) == (4, 2, 2)
    assert (seen["delivered"], seen["failedAgain"], seen["skipped"]) == (2, 0, 0)
    (left,) = client.get("/api/v1/admin/failed-notifications").body["items"]
    assert left["id"] == third["notificationId"]
    (row,) = client.get("/api/v1/admin/audit?pageSize=1").body["items"]
    assert (row["action"], row["reason"], row["detail"]["chosen"]) == ("redrive", "these two", 4)
    assert "letters" not in row["detail"]["filters"]


def test_both_ways_over_http_tell_the_same_story(client: Client) -> None:
    """A redrive of listed dead letters is in the list of redrives and in the audit trail too."""
    first, second = bury(client, 2)
    begun = redrive(client, items=[first, second], ratePerSecond=0.001).body["actionId"]
    wait_until(lambda: newest(client)["delivered"] == 1, timeout=PATIENCE, what="the first had its turn")
    client.call("POST", f"/api/v1/notifications/{second['notificationId']}/cancel")
    third, fourth = bury(client, 2)
    asked = {"items": [third, fourth, third, first], "reason": "by name", "provider": "sandbox"}
    assert client.call("POST", "/api/v1/dead-letters/redrive", asked).body == {"redriven": 2}
    seen = settled(client)
    assert seen["id"] > begun
    assert (seen["actor"], seen["reason"], seen["ratePerSecond"]) == ("anonymous", "by name", None)
    assert (seen["chosen"], seen["matched"], seen["redriven"], seen["delivered"]) == (3, 2, 2, 2)
    assert seen["lastTurnAt"] is not None
    (row,) = client.get("/api/v1/admin/audit?pageSize=1").body["items"]
    assert (row["action"], row["actor"], row["reason"]) == ("redrive", "anonymous", "by name")
    assert row["detail"] == {
        "filters": {},
        "ratePerSecond": None,
        "matched": 2,
        "chosen": 3,
        "provider": "sandbox",
        "redriven": 2,
    }
    again = client.call("POST", "/api/v1/dead-letters/redrive", asked).body
    assert (again, newest(client)["id"]) == ({"redriven": 0}, seen["id"]), "what did nothing is nobody's action"


def test_a_route_redriven_again_leaves_the_older_redrive(client: Client) -> None:
    twice = {"sandbox": {"outcome": "refused", "times": 2}}
    (known,) = bury(client, 1, twice)
    older = redrive(client, items=[known]).body["actionId"]
    wait_until(lambda: newest(client)["failedAgain"] == 1, timeout=PATIENCE, what="it failed again")
    assert client.call("POST", "/api/v1/dead-letters/redrive", {"items": [known]}).body == {"redriven": 1}
    seen = settled(client)
    assert (seen["reason"], seen["delivered"]) == (None, 1)
    before = client.get("/api/v1/admin/redrives?pageSize=2").body["items"][1]
    assert (before["id"], before["redriven"]) == (older, 1)
    assert (before["waiting"], before["delivered"], before["failedAgain"]) == (0, 0, 0), "it counts for the newer one"


def test_those_named_have_their_turns_at_a_rate(client: Client) -> None:
    chosen = bury(client, 3)
    done = redrive(client, items=chosen, ratePerSecond=0.001).body
    assert done["redriven"] == 3
    wait_until(lambda: newest(client)["delivered"] == 1, timeout=PATIENCE, what="the first had its turn")
    seen = newest(client)
    assert (seen["waiting"], seen["ratePerSecond"], seen["lastTurnAt"]) == (2, 0.001, done["lastTurnAt"])
    for one in chosen[1:]:
        client.call("POST", f"/api/v1/notifications/{one['notificationId']}/cancel")
    assert settled(client)["skipped"] == 2


def test_filters_narrow_what_was_named(client: Client) -> None:
    chosen = bury(client, 2)
    assert redrive(client, items=chosen, channel="sms").body["matched"] == 0
    assert redrive(client, items=chosen, channel="push").body["redriven"] == 2


@pytest.mark.parametrize("number", [0, MOST + 1])
def test_too_many_or_none_are_refused_and_nothing_is_touched(client: Client, number: int) -> None:
    (known,) = bury(client, 1)
    others = [{"notificationId": f"n-{at}", "routeId": "push:x"} for at in range(max(0, number - 1))]
    answer = redrive(client, items=[known, *others] if number else [])
    assert (answer.status, answer.body["error"]["code"]) == (400, "VALIDATION_ERROR")
    assert "items" in answer.body["detail"]
    assert str(MOST if number else 1) in answer.body["detail"]
    assert dead(client) == 1


def test_as_many_as_are_allowed_may_be_named(client: Client) -> None:
    (known,) = bury(client, 1)
    others = [{"notificationId": f"n-{at}", "routeId": "push:x"} for at in range(MOST - 1)]
    assert redrive(client, items=[*others, known]).body["redriven"] == 1


def test_a_caller_who_leaves_before_the_answer_loses_nothing(client: Client, program: Program) -> None:
    bury(client, PAGES)
    place = urlsplit(program.wait_ready()["addresses"][0])
    connection = http.client.HTTPConnection(place.hostname or "", place.port)
    body = json.dumps({"reason": "gone at once"})
    connection.request("POST", "/api/v1/admin/redrive", body, {"Content-Type": "application/json", **OVERRIDE})
    # A caller who leaves before the request is read has asked for nothing: leave after the first of two commits.
    wait_until(lambda: newest(client)["reason"] == "gone at once", timeout=PATIENCE, what="it began")
    connection.close()
    wait_until(lambda: newest(client)["redriven"] == PAGES, timeout=PATIENCE, what="all had their turn")
    seen = settled(client)
    assert (seen["matched"], seen["delivered"], dead(client)) == (PAGES, PAGES, 0)


@pytest.mark.req("P-544")
def test_a_redrive_is_stopped_and_its_letters_are_dead_again(client: Client) -> None:
    bury(client, 3)
    body = {"reason": "too early", "ratePerSecond": 0.001}
    begun = client.call("POST", "/api/v1/admin/redrive", body, OVERRIDE).body
    path = f"/api/v1/admin/redrives/{begun['actionId']}/stop"
    assert client.call("POST", path, {"reason": "down again"}).status == 403
    assert client.call("POST", path, {}, OVERRIDE).status == 400
    stopped = client.call("POST", path, {"reason": "down again"}, OVERRIDE)
    assert stopped.body == {"stopped": 2}
    assert dead(client) >= 2
    (newest,) = client.get("/api/v1/admin/redrives?pageSize=1").body["items"]
    assert (newest["id"], newest["stopped"], newest["redriven"]) == (begun["actionId"], 2, 3)
    (noted,) = client.get("/api/v1/admin/audit?pageSize=1").body["items"]
    assert (noted["action"], noted["reason"], noted["subject"]) == (
        "stop_redrive",
        "down again",
        str(begun["actionId"]),
    )
    for unknown in ("999999", "x", "1" * 30):
        assert client.call("POST", f"/api/v1/admin/redrives/{unknown}/stop", {"reason": "?"}, OVERRIDE).status == 404
    redrive(client)
